"""One step over all running sequences: the object that hooks read and write.

A call in the wrong hook raises PhaseError: it would have no effect, or would change a decision.

Length: one object, with everything that hooks may do in a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from operator import index
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core.contract.batch import Batch, DraftResult, Part, Piece, TargetOutput, shares
from spec_core.contract.checks import check_draft, check_extension, check_proposal, check_verdict
from spec_core.contract.fields import field_of, write
from spec_core.contract.kinds import is_served
from spec_core.contract.plan import NO_LIMITS, DraftPlan
from spec_core.contract.probes import ProbeRows, Probes, create_piece
from spec_core.contract.sequence import end_with_error
from spec_core.contract.splice import join_drafts, likely_first
from spec_core.contract.step_record import StepRecord
from spec_core.contract.trimming import shorten_draft
from spec_core.contract.values import Draft, Verdict
from spec_core.errors import NoFiniteLogit, NoTokenAllowed, PhaseError
from spec_core.sampling.noise import (
    DOMAIN_CHOICE,
    DOMAIN_COIN,
    DOMAIN_TOKEN,
    draft_domain,
    gumbel,
    private_key,
    uniform,
)
from spec_core.sampling.reference import NoiseKey

if TYPE_CHECKING:
    from spec_core.contract.sequence import Sequence
    from spec_core.contract.target import Target

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
    copies: what the plugin whose hook runs reads in place of what the core still reads.
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
    copies: dict[str, Any] = attrs.field(factory=dict, init=False)
    _by_seq: dict[Sequence, Part] = attrs.field(factory=dict, init=False)

    # always

    def add(self, part: Part) -> None:
        """Add a sequence to the step. Only the core calls this."""
        self.parts.append(part)
        self._by_seq[part.seq] = part
        self.drafting |= part.budget > 0
        self.constrained |= part.seq.is_held

    def part(self, seq: Sequence) -> Part:
        """The sequence's share of this step. Raises KeyError for a sequence that has none."""
        part = self._by_seq[seq]
        write(self, "current_sequence", seq)
        return part

    def request_values(self, seq: Sequence) -> Mapping[str, Any]:
        """The request's own values for the calling plugin, by the names in its ``Compat(request_values=...)``.

        Each is what the plugin's check returned; a value that the request did not give is missing.
        """
        return seq.plugin_values.get(self.plugin, NO_VALUES)

    def report_cost(self, forwards: int = 0, rows: int = 0) -> None:
        """Report forwards that the plugin ran itself, and their rows."""
        for name, count in (("forwards", forwards), ("rows", rows)):
            counts = field_of(self, name)
            counts[self.plugin] = counts.get(self.plugin, 0) + count

    def _in(self, what: str, *phases: str) -> None:
        if self.phase not in phases:
            raise PhaseError(f"step.{what} belongs to the hook {phases[0]!r}; this is {self.phase!r}")

    # draft

    @property
    def undrafted(self) -> Iterator[tuple[Sequence, int]]:
        """(sequence, budget) of each that may draft and has no draft yet; budget is at least 1."""
        self._in("undrafted", "draft")
        for part in self.parts:
            if part.budget and part.draft is None and self._serves(part.seq):
                budget = part.length_max(self.plugin)
                if budget > 0:
                    write(self, "current_sequence", part.seq)
                    yield part.seq, budget

    def _serves(self, seq: Sequence) -> bool:
        """Whether the asking plugin may draft for a sequence: one that is greedy only serves no temperature."""
        return seq.wants(self.plugin) and is_served(self.proposals.get(self.plugin), seq.sampling.temperature)

    def nodes(self, seq: Sequence) -> int:
        """Max tokens of a tree for this sequence; the budget limits its depth."""
        self._in("nodes", "draft")
        return self._nodes(self._by_seq[seq])

    def _nodes(self, part: Part) -> int:
        return part.nodes_max(self.plugin) if self.trees else part.length_max(self.plugin)

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of the run, in the order in which they are called."""
        return tuple(name for name, kinds in self.proposals.items() if kinds)

    def plan(self, plan: DraftPlan) -> None:
        """Set what methods may draft, in this step and the next ones, while the plan lasts.

        It has no effect on a sequence whose request wants no control. No hook of the controller is called in the
        steps that follow the plan. For a controller, which is called before all methods and drafts nothing:
        Compat(drafts=()). Raises ValueError for any other plugin, for a second plan in one step, and for a method
        that the run does not have.
        """
        self._in("plan", "draft")
        if self.proposals.get(self.plugin):
            raise ValueError(
                "step.plan is for controllers, which never draft: return Compat(drafts=()) "
                "from compat, or propose a shorter draft"
            )
        if self.draft_plan is not None:
            raise ValueError("this step has a plan already: call step.plan once")
        if unknown := sorted(plan.methods - {*self.methods}):
            raise ValueError(f"the plan names {', '.join(unknown)}; the methods of this run are {list(self.methods)}")
        write(self, "draft_plan", plan)
        write(self, "planner", self.plugin)
        self.apply(plan, self.plugin)
        for part in self.parts:
            if plan.drop and part.seq.wants(self.plugin):
                part.seq.drop(plan.drop, self.proposals)

    def apply(self, plan: DraftPlan, controller: str) -> None:
        """Only the core calls this: set the limits of a plan for the sequences that want this control."""
        for part in self.parts:
            if part.seq.wants(controller):
                write(part, "limits", plan.limits_of(part.seq.number))

    def price(self, seq: Sequence, fixed: float | None, usual: float) -> float:
        """The min chance, 0 to 1, with which a path must be accepted for another token to pay.

        A drafter may stop by it; it may decide whether the next token is drawn, not whether a drawn one stands.

        :param fixed: the user's own, which counts where it is not None; otherwise the controller's.
        :param usual: where no controller set one.
        """
        if fixed is not None:
            return fixed
        limit = (self._by_seq[seq].limits or NO_LIMITS).get(self.plugin)
        if limit is None or limit.price is None:
            return usual
        field_of(self, "priced").add(self.plugin)
        return limit.price

    def propose(self, seq: Sequence, draft: Draft) -> None:
        """Propose a draft. Raises ValueError or TypeError if it breaks the contract."""
        self._in("propose", "draft")
        part = self.part(seq)
        if part.draft is not None or not part.budget or not seq.wants(self.plugin):
            raise ValueError("this sequence was not offered: it already has a draft, or may not draft in this step")
        check_proposal(draft, self.proposals.get(self.plugin, frozenset()), seq.sampling.temperature)
        if draft.proposal == "sampled":
            draft = own(draft)
        check_draft(draft, part.length_max(self.plugin), self._nodes(part), self.target.info.vocab, self.trees)
        short: Draft | None = draft
        if seq.confidence_min or seq.draft_min:
            short = shorten_draft(draft, seq.confidence_min, seq.draft_min)
        if short is not None:
            write(part, "draft", short)
            field_of(part, "pieces").append(Piece(self.plugin, short))

    @property
    def leaves(self) -> Iterator[tuple[Sequence, Draft, int, int]]:
        """(sequence, draft, leaf, budget): the ends of other methods' drafts, where more may be drafted.

        For a plugin that declared ``Compat(extends=True)``; nothing for any other. draft: what was proposed so far.
        leaf: index of a token that nothing follows; a chain has one, its last. budget: longest path that may follow it,
        at least 1. Of a tree the leaf whose path is the most likely comes first, by the confidence of its tokens.
        """
        self._in("leaves", "draft")
        for part in self.parts:
            if part.draft is None or self.plugin not in self.extenders or not self._serves(part.seq):
                continue
            draft, depths = part.draft, part.draft.depths
            for leaf in likely_first(draft):
                budget = self._further(part, depths[leaf])
                if budget > 0 and draft.ids[leaf] not in part.seq.stop.tokens:
                    write(self, "current_sequence", part.seq)
                    yield part.seq, draft, leaf, budget

    def _further(self, part: Part, depth: int) -> int:
        """Longest path that the asking plugin may add behind a token of this depth."""
        return min(part.budget - depth, self._tokens_left(part), part.length_max(self.plugin))

    def _tokens_left(self, part: Part) -> int:
        """Tokens that the asking plugin may add to a draft of others."""
        whole = part.nodes if self.trees else part.budget
        return min(whole - part.drafted, self._nodes(part))

    def extend(self, seq: Sequence, draft: Draft, leaf: int) -> None:
        """Append a draft behind a token that nothing follows: its first tokens follow ``leaf``.

        Raises ValueError or TypeError where it breaks the contract, and for a leaf that ``leaves`` did not offer.
        """
        self._in("extend", "draft")
        part, leaf = self.part(seq), index(leaf)
        if part.draft is None or self.plugin not in self.extenders or not seq.wants(self.plugin):
            raise ValueError("there is no draft to extend, or compat did not declare extends=True")
        check_extension(part.draft, leaf)
        check_proposal(draft, self.proposals.get(self.plugin, frozenset()), seq.sampling.temperature)
        if draft.proposal == "sampled":
            draft = own(draft)
        longest = self._further(part, part.draft.depths[leaf])
        check_draft(draft, longest, self._tokens_left(part), self.target.info.vocab, self.trees)
        short = shorten_draft(draft, seq.confidence_min, 0) if seq.confidence_min else draft
        if short is not None:
            field_of(part, "pieces").append(Piece(self.plugin, short, part.drafted, leaf))
            write(part, "draft", join_drafts(field_of(part, "draft"), short, leaf))

    def probe_room(self, seq: Sequence) -> int:
        """How many rows the plugin may probe for this sequence: its ``Needs(probes=...)``, or 0 if there is no room."""
        self._in("probe_room", "draft")
        part = self.part(seq)
        if not part.probes_max or not self._serves(seq) or not part.length_max(self.plugin):
            return 0
        return self.probing.get(self.plugin, 0) - sum(len(p.ids) for p in part.probes if p.source == self.plugin)

    def probe(self, seq: Sequence, probes: Probes) -> None:
        """Evaluate rows with the step that are no drafts: they are never kept, and ``probe_rows`` gives their outputs.

        Their parents number the draft tokens that the sequence has now: propose first. Raises ValueError or TypeError
        if they break the contract.
        """
        room, part, info = self.probe_room(seq), self.part(seq), self.target.info
        piece = create_piece(self.plugin, probes, part.drafted, part.probed, room, info.vocab, info.width)
        field_of(part, "probes").append(piece)

    def noise(self, seq: Sequence, i: int, branch: int = 0, ids: list[int] | Tensor | None = None) -> Tensor:
        """Gumbel noise [V] float64, or [n] for ``ids``, of the i-th token to be drafted (0: the next output token).

        The default rule uses the same noise, so ``argmax(log q + noise)`` is often the token that the target chooses.
        Under a rule with private noise, only drafters use this noise, and it is new in every step and for every
        request of the run: a rejected position must not be drawn again from the same numbers.

        The returned tensor is a copy. In ``rollback`` the positions are still those of this step's draft: a method that
        reads rows of logits there may choose from them with the noise of their positions.

        :param i: from 0. Tokens from the budget on are not drafted in this step.
        :param branch: in a tree, which node of its depth the token follows. Shared noise is the same for all nodes;
            private noise differs, since a rule may look below a node before it rejects it.
        :param ids: noise of these tokens only; a few are cheap, the whole vocabulary takes some hundred microseconds.
        """
        self._in("noise", "draft", "rollback")
        if (i := index(i)) < 0:
            raise ValueError(f"noise was requested for drafted token {i}, the first is 0")
        source, t = self.drawing(seq, i, index(branch))
        seed, stream, domain = source
        if ids is not None and not isinstance(ids, Tensor):
            ids = torch.from_numpy(np.array(ids, dtype=np.int64))  # torch takes five times as long for a list
        return gumbel(seed, t, self.target.info.vocab if ids is None else ids, stream, domain)

    def drawing(self, seq: Sequence, i: int, branch: int = 0) -> tuple[NoiseKey, int]:
        """The key of ``noise(seq, i, branch)``: (seed, stream, domain), and its output position."""
        if not self.private:
            return (seq.seed, seq.noise_stream, DOMAIN_TOKEN), seq.output_position + i
        return (private_key(seq.seed, seq.noise_stream), seq.number, draft_domain(i, branch)), seq.output_position

    # accept

    def coins(self, seq: Sequence, n: int) -> np.ndarray:
        """Uniforms in (0, 1) for a rule with private noise: [n] float64; every call in a step gives the same numbers.

        Drafters cannot read them, and no other step or request of the run gets the same numbers.
        """
        self._in("coins", "accept")
        return uniform(
            private_key(seq.seed, seq.noise_stream), seq.output_position, np.arange(n), seq.number, DOMAIN_COIN
        )

    def choosing(self, seq: Sequence) -> NoiseKey:
        """(seed, stream, domain) of the noise with which the core chooses a token."""
        if not self.private:
            return seq.seed, seq.noise_stream, DOMAIN_TOKEN
        return private_key(seq.seed, seq.noise_stream), seq.number, DOMAIN_CHOICE

    @property
    def undecided(self) -> Iterator[Sequence]:
        """Sequences that need a verdict in this step and have none yet."""
        self._in("undecided", "accept")
        for part in self.parts:
            if part.decides and part.verdict is None and part.seq.finish != "error":
                write(self, "current_sequence", part.seq)
                yield part.seq

    def logits(self, seq: Sequence) -> Tensor:
        """[1+K, V]: row 0 follows the last committed token, row 1+j follows draft j."""
        self._in("logits", "accept", "rollback", "process")
        part = self.part(seq)
        assert self.output is not None
        return self.output.logits[part.logits_row : part.logits_row + 1 + part.drafted]

    def mask(self, seq: Sequence, row: int) -> np.ndarray | None:
        """[ceil(V / 32)] uint32: the tokens that the request's constraint allows at ``row`` of ``logits(seq)``, token
        ``id`` as bit ``id % 32`` of word ``id // 32``. None: all.
        """
        self._in("mask", "accept", "rollback", "process")
        masks = self.part(seq).masks
        return None if masks is None else masks[row]

    def history(self, seq: Sequence, row: int) -> list[int]:
        """Tokens before the choice at ``row`` of ``logits(seq)``: prompt, output, and that row's drafted prefix."""
        self._in("history", "accept", "rollback", "process")
        draft = self.part(seq).draft
        if row == 0 or draft is None:
            return seq.tokens
        return seq.tokens + [draft.ids[i] for i in draft.ancestry(row - 1)]

    def decide(self, seq: Sequence, verdict: Verdict) -> None:
        """Set the verdict of a sequence; the first one is final.

        Raises ValueError for a path that the draft does not have, and for a second verdict.
        """
        self._in("decide", "accept")
        part = self.part(seq)
        if part.verdict is not None or not part.decides:
            raise ValueError("this sequence already has a verdict, or needs none in this step")
        check_verdict(verdict, part.draft, self.target.info.vocab)
        write(part, "verdict", verdict)
        write(part, "rule", self.plugin)

    # rollback

    @property
    def verdicts(self) -> dict[Sequence, Verdict]:
        """The verdict of each sequence that has one, after the cut at stop tokens and limits."""
        self._in("verdicts", "rollback", "process")
        return {p.seq: p.verdict for p in self.parts if p.verdict is not None}

    def kept_rows(self, seq: Sequence) -> list[int]:
        """Batch rows of the kept drafts, root first."""
        self._in("kept_rows", "rollback", "process")
        part = self.part(seq)
        return [part.first_draft_row + i for i in part.verdict.path] if part.verdict else []

    def probe_rows(self, seq: Sequence) -> ProbeRows | None:
        """Outputs of the rows that the calling plugin probed for a sequence in this step; None if it probed none."""
        self._in("probe_rows", "rollback")
        part = self.part(seq)
        at = [p.first + i for p in field_of(part, "probes") if p.source == self.plugin for i in range(len(p.ids))]
        if not at or self.output is None:
            return None
        logits, rows = ([first + part.drafted + i for i in at] for first in (part.logits_row + 1, part.first_draft_row))
        hidden, final = self.output.hidden, self.output.final
        states = {i: hidden[i][rows] for i in hidden}
        return ProbeRows(self.output.logits[logits], states, None if final is None else final[rows])

    @property
    def draft_results(self) -> Iterator[tuple[Sequence, DraftResult]]:
        """(sequence, share) of the calling plugin's own drafts in this step, to learn what was accepted.

        ``share.full_verdict`` is the verdict on them before the cut at a stop or limit, ``share.verdict`` the one after
        it. Tokens that extended a draft appear only if all tokens before them were accepted: otherwise none was tested.
        """
        for seq in self.verdicts:
            for share in shares(self._by_seq[seq], self.plugin):
                yield seq, share

    def rewind(self, seq: Sequence, position: int) -> None:
        """Evaluate the tokens from ``position`` on again, as pending rows of the next forward.

        Only for a sequence with a verdict in this step, since rewinding a long prompt could repeat forever. Only an
        owner of target state may call it, after it restored that state to ``position``. Raises ValueError otherwise.
        """
        self._in("rewind", "rollback")
        part = self.part(seq)
        if self.plugin not in self.owners:
            raise ValueError("only an owner of target state can rewind a sequence: Compat(owns={...})")
        if part.verdict is None:
            raise ValueError("only a sequence with a verdict in this step can be rewound")
        if not 0 <= position <= part.end + len(part.verdict.path):
            raise ValueError(f"cannot rewind to position {position}: rows 0 to {part.end} are committed")
        write(part, "rewound", position if part.rewound is None else min(part.rewound, position))

    def fail(self, seq: Sequence, error: Exception) -> None:
        """End this sequence with an error and drop its slot. Emitted tokens are kept."""
        self._in("fail", "accept", "rollback")
        end_with_error(seq, _blame(seq, error))


def _blame(seq: Sequence, error: Exception) -> Exception:
    """The error of a sequence: a row without a finite logit is the mistake of a request that forbids tokens."""
    forbids = seq.is_held or -math.inf in seq.sampling.logit_bias.values()
    if isinstance(error, NoFiniteLogit) and forbids:
        return NoTokenAllowed("every token is banned: no logit is above -inf", hint="remove a bias of -inf")
    return error


def own(draft: Draft) -> Draft:
    """A draft with a copy of ``probs``: a drafter may write into its buffer again before a rule reads them."""
    probs = None if draft.probs is None else draft.probs.detach().clone()
    return Draft(draft.ids, draft.proposal, probs, draft.parents, draft.confidence)
