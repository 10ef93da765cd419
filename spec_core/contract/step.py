"""The state of one step over all running sequences. Hooks see it through views: see ``hook_step``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
from torch import Tensor

from spec_core.contract.batch import Batch, Part, TargetOutput
from spec_core.contract.fields import write
from spec_core.contract.kinds import is_served
from spec_core.contract.plan import DraftPlan
from spec_core.contract.step_record import StepRecord
from spec_core.errors import NoFiniteLogit, NoTokenAllowed
from spec_core.sampling.noise import (
    DOMAIN_CHOICE,
    DOMAIN_TOKEN,
    draft_domain,
    private_key,
)
from spec_core.sampling.reference import NoiseKey

if TYPE_CHECKING:
    from spec_core.contract.sequence import Sequence
    from spec_core.contract.target import Target
    from spec_core.contract.values import Verdict

NO_VALUES: Mapping[str, Any] = MappingProxyType({})


@attrs.define(eq=False)
class Step:
    """One step.

    target: the run's target. parts: the sequences of the step, in batch order. absent: running ones without rows.
    proposals: {plugin: kinds of proposal it may draft in this run}. probing: {plugin: rows that it may probe}.
    owners: plugins that own target state.
    extenders: plugins that may extend the drafts of others.
    wants_probs: the active rule reads ``Draft.probs``. trees: drafts may branch.
    private: the active rule uses noise that drafters cannot read. drafting: at least one sequence may draft.
    constrained: a constraint, or ``min_tokens``, limits the tokens of at least one sequence.
    phase: the hook that runs now. plugin: the one whose hook runs now. current_sequence: the one it accessed last.
    batch: rows of the forward, None before it. output: what it computed, None before it.
    number: steps of the run before it. last_record: of the last completed step, None in the first.
    record: what this step took, for observers; None before its end.
    records: of the steps since a controller was last called, oldest first. The run clears the list after its call.
    priced: plugins that asked for a price that a controller had set. draft_plan, planner: the plan
    made in this step, and who made it.
    seconds: {hook.plugin, or "verify": seconds}. forwards, rows: {plugin, or "target": number in this step}.
    copies: what the plugin whose hook runs reads in place of what the core still reads; None where it reads the state.
    """

    target: Target
    proposals: Mapping[str, frozenset[str]]
    owners: frozenset[str] = frozenset()
    extenders: frozenset[str] = frozenset()
    probing: Mapping[str, int] = attrs.field(factory=dict, kw_only=True)
    parts: list[Part] = attrs.field(factory=list)
    absent: tuple[Sequence, ...] = ()
    wants_probs: bool = False
    trees: bool = False
    private: bool = False
    phase: str = "plan"
    plugin: str = ""
    current_sequence: Sequence | None = None
    drafting: bool = False
    constrained: bool = False
    batch: Batch | None = None
    output: TargetOutput | None = None
    number: int = 0
    last_record: StepRecord | None = None
    record: StepRecord | None = None
    records: list[StepRecord] = attrs.field(factory=list)
    priced: set[str] = attrs.field(factory=set)
    draft_plan: DraftPlan | None = None
    planner: str = ""
    seconds: dict[str, float] = attrs.field(factory=dict)
    forwards: dict[str, int] = attrs.field(factory=dict)
    rows: dict[str, int] = attrs.field(factory=dict)
    failures: list[Exception] = attrs.field(factory=list)
    began: float = attrs.field(factory=perf_counter)
    copies: dict[str, Any] | None = attrs.field(default=None, init=False)
    _by_seq: dict[Sequence, Part] = attrs.field(factory=dict, init=False)

    def add(self, part: Part) -> None:
        """Add a sequence to the step."""
        self.parts.append(part)
        self._by_seq[part.seq] = part
        self.drafting |= part.budget > 0
        self.constrained |= part.seq.is_held

    def part(self, seq: Sequence) -> Part:
        """The sequence's share of this step. Raises KeyError for a sequence that has none."""
        part = self._by_seq[seq]
        self.current_sequence = seq
        return part

    def logits(self, seq: Sequence) -> Tensor:
        """[1+K, V]: row 0 follows the last committed token, row 1+j follows draft j."""
        part = self._by_seq[seq]
        assert self.output is not None
        return self.output.logits[part.logits_row : part.logits_row + 1 + part.drafted]

    @property
    def verdicts(self) -> dict[Sequence, Verdict]:
        """The verdict of each sequence that has one."""
        return {part.seq: part.verdict for part in self.parts if part.verdict is not None}

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of the run, in the order in which they are called."""
        return tuple(name for name, kinds in self.proposals.items() if kinds)

    def request_values(self, seq: Sequence) -> Mapping[str, Any]:
        """The request's own values for the calling plugin."""
        return seq.plugin_values.get(self.plugin, NO_VALUES)

    def report_cost(self, forwards: int = 0, rows: int = 0) -> None:
        """Add forwards that the calling plugin ran itself, and their rows."""
        for counts, count in ((self.forwards, forwards), (self.rows, rows)):
            counts[self.plugin] = counts.get(self.plugin, 0) + count

    def serves(self, seq: Sequence) -> bool:
        """Whether the calling plugin may draft for a sequence: one that is greedy only serves no temperature."""
        return seq.wants(self.plugin) and is_served(self.proposals.get(self.plugin), seq.sampling.temperature)

    def nodes_max(self, part: Part) -> int:
        """Most tokens of a tree that the calling plugin may draft."""
        return part.nodes_max(self.plugin) if self.trees else part.length_max(self.plugin)

    def apply(self, plan: DraftPlan, controller: str) -> None:
        """Set the limits of a plan for the sequences that want this control."""
        for part in self.parts:
            if part.seq.wants(controller):
                write(part, "limits", plan.limits_of(part.seq.number))

    def drawing(self, seq: Sequence, i: int, branch: int = 0) -> tuple[NoiseKey, int]:
        """The key of ``DraftStep.noise(seq, i, branch)``: (seed, stream, domain), and its output position."""
        if not self.private:
            return (seq.seed, seq.noise_stream, DOMAIN_TOKEN), seq.output_position + i
        return (private_key(seq.seed, seq.noise_stream), seq.number, draft_domain(i, branch)), seq.output_position

    def choosing(self, seq: Sequence) -> NoiseKey:
        """(seed, stream, domain) of the noise with which the core chooses a token."""
        if not self.private:
            return seq.seed, seq.noise_stream, DOMAIN_TOKEN
        return private_key(seq.seed, seq.noise_stream), seq.number, DOMAIN_CHOICE


def error_of_request(seq: Sequence, error: Exception) -> Exception:
    """The error of a sequence: a row without a finite logit is the mistake of a request that forbids tokens."""
    forbids = seq.is_held or -math.inf in seq.sampling.logit_bias.values()
    if isinstance(error, NoFiniteLogit) and forbids:
        return NoTokenAllowed("every token is banned: no logit is above -inf", hint="remove a bias of -inf")
    return error
