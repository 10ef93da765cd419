"""Rows of one forward, the sequences they belong to, and what the target computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
from torch import Tensor

from spec_core.contract.values import Draft, Streams, Verdict

if TYPE_CHECKING:
    from spec_core.contract.sequence import Sequence


@attrs.frozen(eq=False)
class Batch:
    """Rows of one forward: for each part its pending tokens, then its draft tokens.

    tokens: [R] int64, -1 where the row is given as an embedding. positions: [R] int64; of a draft row the
        position of the last committed token plus its depth.
    parts: the sequences' shares, in the order of their rows; ``part.row`` is the first pending row, ``part.spec`` the
        first draft row.
    embeds: {row: [D]}.
    """

    tokens: Tensor
    positions: Tensor
    parts: tuple[Part, ...]
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)

    @property
    def parents(self) -> list[int]:
        """Batch row each row follows; -1 where it follows what the slot already holds."""
        parents: list[int] = []
        for part in self.parts:
            parents += [-1, *range(part.row, part.spec - 1)]
            if part.draft is not None:
                chain = part.draft.parents or range(-1, len(part.draft) - 1)
                parents += [part.spec + p if p >= 0 else part.spec - 1 for p in chain]
        return parents


@attrs.frozen(eq=False)
class TargetOutput:
    """What one target forward computed. Views into the target's memory: valid until ``process`` returns.

    logits: [rows, V] float; the last pending row and the draft rows of every deciding part, in batch order;
        with ``Needs.all_logits`` every row of the batch.
    hidden: {i: [R, D]} hidden states asked for; another i raises NotAskedFor.
    final: [R, D] after the final norm, or None.
    trace: what the owner of recurrent state asked to be recorded, or None.
    """

    logits: Tensor
    hidden: Mapping[int, Tensor] = attrs.field(factory=dict, converter=Streams)
    final: Tensor | None = None
    trace: Any = None


@attrs.define(eq=False)
class Part:
    """A sequence's share of a step.

    start: position of the first pending row. pending: committed tokens that are not yet evaluated.
    decides: the pending rows include the last committed token, so a verdict follows.
    budget: longest path that may be drafted, 0 where drafting is not offered. nodes: most tokens of a tree.
    draft, source: what was proposed, and the plugin that did.
    row, spec: batch rows of the first pending token and of the first draft token.
    at: row in ``TargetOutput.logits`` of the last pending token; draft rows follow it.
    verdict: what is kept, after the cut at stop tokens and limits. uncut: the verdict before that cut.
    rule: the plugin that decided. limits: {plugin, or None for all: longest draft that a controller allows}.
    prices: {plugin, or None for all: min chance of a drafted token}. emitted: tokens committed by this step.
    rewound: position it was rewound to, or None.
    """

    seq: Sequence
    start: int
    pending: list[int]
    decides: bool
    budget: int = 0
    nodes: int = 0
    draft: Draft | None = None
    source: str | None = None
    row: int = 0
    spec: int = 0
    at: int = 0
    verdict: Verdict | None = None
    uncut: Verdict | None = None
    rule: str | None = None
    emitted: list[int] = attrs.field(factory=list)
    rewound: int | None = None
    limits: dict[str | None, int] = attrs.field(factory=dict)
    prices: dict[str | None, float] = attrs.field(factory=dict)

    @property
    def drafted(self) -> int:
        """Number of draft tokens, 0 without a draft."""
        return 0 if self.draft is None else len(self.draft.ids)

    @property
    def end(self) -> int:
        """One past the last pending row."""
        return self.start + len(self.pending)
