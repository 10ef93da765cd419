"""Some blocks of a target, in the caches of its sequences."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as TypingSequence
from itertools import accumulate
from typing import TypeAlias

import attrs
from torch import Tensor

from spec_core import Sequence

PartRows: TypeAlias = TypingSequence[tuple[Sequence, int, list[int]]]
"""Sequences with the start of their rows and the tokens, see ``PartialForward``."""


@attrs.frozen(eq=False)
class PartOfTarget:
    """Some blocks of a target. run: logits of the chosen rows of a batch."""

    run: Callable[[PartRows, list[int]], Tensor]

    def forward(self, rows: PartRows) -> Tensor:
        """Logits [n, V] after the last of the tokens of each sequence."""
        return self._run(rows, [end - 1 for end in _ends(rows)])

    def forward_rows(self, rows: PartRows, first: int = 0) -> list[Tensor]:
        """Logits of the rows of each sequence from ``first`` on."""
        counts = [max(len(tokens) - first, 0) for _, _, tokens in rows]
        chosen = [row for end, n in zip(_ends(rows), counts, strict=True) for row in range(end - n, end)]
        return list(self._run(rows, chosen).split(counts))

    def _run(self, rows: PartRows, chosen: list[int]) -> Tensor:
        for seq, start, tokens in rows:
            if start < seq.evaluated or not tokens:
                raise ValueError(f"rows from {start} on, of {len(tokens)} tokens: {seq.evaluated} rows are evaluated")
        return self.run(rows, chosen)


def _ends(rows: PartRows) -> list[int]:
    """The end of the rows of each sequence in the batch."""
    return list(accumulate(len(tokens) for _, _, tokens in rows))
