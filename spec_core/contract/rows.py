"""Committed rows, as ``process`` delivers them to plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
from torch import Tensor

from spec_core.contract.hidden_states import HiddenStates, requested_final

if TYPE_CHECKING:
    from spec_core.contract.sequence import Sequence
    from spec_core.contract.verified_step import ProcessStep


@attrs.frozen(eq=False)
class Span:
    """Committed rows of one sequence, positions ``start`` ... ``start + n - 1``, delivered once.

    Whatever a plugin stored for positions at or after ``start`` is no longer valid.
    start: position of the first row.
    tokens: the n tokens of these rows, -1 where the row was given as an embedding.
    next: the n tokens that follow them, so pairs (hidden i, token i+1) are complete.
    next_embeds: {index: [D]} where the next position was given as an embedding (its token is -1).
    hidden: {i: [n, D]}; an i that no plugin asked for raises NotRequested. final: [n, D]; without
        ``Needs(final=True)`` of a plugin reading it raises NotRequested.
    """

    start: int
    tokens: list[int]
    next: list[int]
    next_embeds: Mapping[int, Tensor]
    hidden: Mapping[int, Tensor] = attrs.field(converter=HiddenStates)
    _final: Tensor | None

    @property
    def final(self) -> Tensor:
        """[n, D] after the final norm."""
        return requested_final(self._final)

    @property
    def end(self) -> int:
        """One past the last row."""
        return self.start + len(self.tokens)


@attrs.frozen(eq=False)
class Rows:
    """All rows committed in one step, by sequence."""

    step: ProcessStep
    spans: Mapping[Sequence, Span]

    def by_sequence(self) -> Iterator[tuple[Sequence, Span]]:
        """(sequence, span) of the sequences that the calling plugin may serve."""
        step = self.step._shown[0]
        for seq, span in self.spans.items():
            if seq.wants(step.plugin):
                step.current_sequence = seq
                yield seq, span
