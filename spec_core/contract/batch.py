"""Rows of one forward, the sequences they belong to, and what the target computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from torch import Tensor

from spec_core.contract.hidden_states import HiddenStates
from spec_core.contract.plan import Limit
from spec_core.contract.probes import ProbePiece, probe_parents
from spec_core.contract.splice import explicit_parents
from spec_core.contract.values import Draft, Verdict
from spec_core.sampling.draws import PlainRows
from spec_core.sampling.logprob import Logprob

if TYPE_CHECKING:
    from spec_core.contract.sequence import Sequence


@attrs.frozen(eq=False)
class Batch:
    """Rows of one forward: for each part its pending tokens, then its draft tokens, then its probes.

    tokens: [R] int64, -1 where the row is given as an embedding. positions: [R] int64; for a draft row, the
        position of the last committed token plus its depth.
    parts: the sequences' shares, in the order of their rows; ``part.row`` is the first pending row,
        ``part.first_draft_row`` the first draft row.
    embeds: {row: [D]}.
    choices: {sequence: the choices at its rows of logits}, which a target that ``chooses`` makes; of sequences without
        masks, biases, penalties and cuts, and none where no rule reads them.
    """

    tokens: Tensor
    positions: Tensor
    parts: tuple[Part, ...]
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)
    choices: Mapping[Sequence, PlainRows] = attrs.field(factory=dict)

    @property
    def parents(self) -> list[int]:
        """For each row the batch row that it follows; -1 if it follows the rows that the slot already holds."""
        parents: list[int] = []
        for part in self.parts:
            if part.pending:
                parents += [-1, *range(part.row, part.first_draft_row - 1)]
            if part.branch_rows:
                last = part.first_draft_row - 1 if part.pending else -1
                chain = (part.branch_parents or range(-1, part.drafted - 1))[part.held :]
                parents += [part.first_draft_row + p if p >= part.held else last if p < 0 else -1 for p in chain]
        return parents


@attrs.frozen(eq=False)
class TargetOutput:
    """What one target forward computed. Views into the target's memory: valid until ``process`` returns.

    logits: [rows, V] float; the last pending row and the draft rows of every deciding part, in batch order;
        with ``Needs.all_logits`` every row of the batch.
    hidden: {i: [R, D]} the requested hidden states; another i raises NotRequested.
    final: [R, D] after the final norm, or None.
    trace: what was recorded as ``Needs.trace`` requests, or None.
    choices: waits for the choices of the batch, and returns a token and the largest logit for every row of
        ``logits``; a row without a choice has any. None: the target has made none.
    """

    logits: Tensor
    hidden: Mapping[int, Tensor] = attrs.field(factory=dict, converter=HiddenStates)
    final: Tensor | None = None
    trace: Any = None
    choices: Callable[[], tuple[list[int], list[float]]] | None = None


@attrs.frozen(eq=False)
class Piece:
    """What one method proposed in a step.

    source: the method. draft: as it proposed it. first: index of its first token in the whole draft. leaf: index in the
    whole draft of the token that it follows, -1 for committed text.
    """

    source: str
    draft: Draft
    first: int = 0
    leaf: int = -1

    def accepted_in(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """This piece's tokens in a path of the whole draft, by their index in its own draft."""
        first, end = self.first, self.first + len(self.draft.ids)
        if first == 0 and (not path or path[-1] < end):
            return path
        return tuple(i - first for i in path if first <= i < end)

    def was_tested(self, path: tuple[int, ...]) -> bool:
        """Whether a path of the whole draft holds the token that this piece follows: else nothing of it was tested."""
        return self.leaf < 0 or self.leaf in path


@attrs.define(eq=False)
class Part:
    """A sequence's share of a step.

    start: position of the first pending row. pending: committed tokens that are not yet evaluated; none where a forward
        follows another one, see ``toolkit.forward``.
    decides: the pending rows include the last committed token, so a verdict follows.
    budget: longest path that may be drafted, 0 if none. nodes: max tokens of a tree.
    draft: the proposed draft. pieces: which plugin proposed which of its tokens, in the order proposed.
    held: its first tokens whose rows the last forward left in the target; they have no rows in this batch, and other
        rows are numbered as if they had.
    probes: rows that are evaluated after the drafts and never kept, by method. probes_max: how many there may be.
    row, first_draft_row: batch rows of the first pending token and of the first draft token.
    logits_row: row in ``TargetOutput.logits`` of the last pending token; draft rows follow it.
    verdict: the verdict after the cut at stop tokens and limits. full_verdict: the one before that cut.
    rule: the plugin that decided. emitted: tokens committed by this step.
    limits: {method: Limit} of a controller's plan, where a method without one does not draft; None without a plan.
    masks: [1+K, ceil(V / 32)] uint32, the tokens that the request's constraint and ``min_tokens`` allow at every row;
        None: all.
    dead_ends: rows at which it allows no token, though the text is not complete.
    rewound: position the sequence was rewound to, or None.
    logprobs: of the emitted tokens, if the request asks for them.
    copies: drafts as the plugin whose hook runs reads them, made once; None where it reads the drafts themselves.
    """

    seq: Sequence
    start: int
    pending: list[int]
    decides: bool
    budget: int = 0
    nodes: int = 0
    draft: Draft | None = None
    held: int = attrs.field(default=0, kw_only=True)
    probes: list[ProbePiece] = attrs.field(factory=list, kw_only=True)
    probes_max: int = attrs.field(default=0, kw_only=True)
    pieces: list[Piece] = attrs.field(factory=list)
    row: int = 0
    first_draft_row: int = 0
    logits_row: int = 0
    verdict: Verdict | None = None
    full_verdict: Verdict | None = None
    rule: str | None = None
    emitted: list[int] = attrs.field(factory=list)
    rewound: int | None = None
    limits: Mapping[str, Limit] | None = None
    masks: np.ndarray | None = None
    dead_ends: frozenset[int] = frozenset()
    logprobs: tuple[Logprob, ...] = ()
    copies: dict[int, Draft] | None = None

    @property
    def drafted(self) -> int:
        """Number of draft tokens, 0 without a draft."""
        return 0 if self.draft is None else len(self.draft.ids)

    @property
    def probed(self) -> int:
        """Number of probe rows."""
        return sum(len(piece.ids) for piece in self.probes)

    @property
    def branch_rows(self) -> int:
        """Number of rows of the batch after the pending ones: of draft tokens, then of probes."""
        return self.drafted - self.held + (self.probed if self.probes else 0)

    @property
    def branch_parents(self) -> tuple[int, ...] | None:
        """Parents of draft tokens, held ones first, and of probes; -1 is the last pending row. None: a chain."""
        if not self.probes:
            return None if self.draft is None else self.draft.parents
        drafts = () if self.draft is None else explicit_parents(self.draft)
        return (*drafts, *probe_parents(self.probes, self.drafted))

    @property
    def source(self) -> str | None:
        """The plugin that drafted first, None without a draft."""
        return self.pieces[0].source if self.pieces else None

    @property
    def sources(self) -> list[str]:
        """The plugin that proposed it, for every draft token."""
        return [piece.source for piece in self.pieces for _ in piece.draft.ids]

    @property
    def end(self) -> int:
        """One past the last pending row."""
        return self.start + len(self.pending)

    def length_max(self, method: str) -> int:
        """Longest path that a method may draft; 0 if a plan lets it draft nothing."""
        if self.limits is None:
            return self.budget
        limit = self.limits.get(method)
        if limit is None:
            return 0
        return self.budget if limit.length is None else min(limit.length, self.budget)

    def nodes_max(self, method: str) -> int:
        """Most tokens of a tree that a method may draft."""
        limit = None if self.limits is None else self.limits.get(method)
        return self.nodes if limit is None or limit.nodes is None else min(limit.nodes, self.nodes)


@attrs.frozen(eq=False)
class DraftResult:
    """One method's own share of a decided draft, from ``step.draft_results``.

    draft: as it proposed it. leaf: index in the whole draft of the token that it follows, -1 for committed text.
    full_verdict: its own tokens that were kept, and the token after them, before the cut at stop tokens and limits.
    verdict: the same after that cut. part: the sequence's whole share of the step.
    """

    draft: Draft
    leaf: int
    full_verdict: Verdict
    verdict: Verdict
    part: Part

    @property
    def drafted(self) -> int:
        """Number of its own draft tokens."""
        return len(self.draft.ids)


def shares(part: Part, method: str) -> list[DraftResult]:
    """What a method proposed in a part and what was kept of it; without what follows a token that was rejected."""
    whole, uncut, verdict = part.draft, part.full_verdict, part.verdict
    if whole is None or uncut is None or verdict is None:
        return []
    pieces = [piece for piece in part.pieces if piece.source == method and piece.was_tested(uncut.path)]
    return [DraftResult(p.draft, p.leaf, _own(p, whole, uncut), _own(p, whole, verdict), part) for p in pieces]


def _own(piece: Piece, whole: Draft, verdict: Verdict) -> Verdict:
    """Of a verdict on the whole draft, the part on a piece: its own path, and the token that follows that."""
    path = piece.accepted_in(verdict.path)
    if path == verdict.path:
        return verdict
    later = [i for i in verdict.path if i >= piece.first + len(piece.draft)]
    return Verdict(path, whole.ids[later[0]] if later else verdict.next_token, verdict.tv_distance)
