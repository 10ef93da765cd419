"""Some blocks of a target, in the caches of its sequences."""

from __future__ import annotations

from collections.abc import Sequence as TypingSequence
from itertools import accumulate
from typing import TYPE_CHECKING

import attrs
from torch import Tensor

from spec_core import Sequence
from spec_core.toolkit import Overlay

if TYPE_CHECKING:
    from spec_targets.runtime.build import Executor
    from spec_targets.runtime.torch_target import TorchTarget


@attrs.frozen(eq=False)
class PartOfTarget:
    """Some blocks of a target. overlay: other weights of their rows."""

    target: TorchTarget
    executor: Executor
    overlay: Overlay | None = None

    def forward(self, rows: TypingSequence[tuple[Sequence, int, list[int]]]) -> Tensor:
        """Logits [n, V] after the last of the tokens of each sequence."""
        return self._run(rows, [end - 1 for end in _ends(rows)])

    def forward_rows(self, rows: TypingSequence[tuple[Sequence, int, list[int]]], first: int = 0) -> list[Tensor]:
        """Logits of the rows of each sequence from ``first`` on."""
        counts = [max(len(tokens) - first, 0) for _, _, tokens in rows]
        chosen = [row for end, n in zip(_ends(rows), counts, strict=True) for row in range(end - n, end)]
        return list(self._run(rows, chosen).split(counts))

    def _run(self, rows: TypingSequence[tuple[Sequence, int, list[int]]], chosen: list[int]) -> Tensor:
        for seq, start, tokens in rows:
            if start < seq.evaluated or not tokens:
                raise ValueError(f"rows from {start} on, of {len(tokens)} tokens: {seq.evaluated} rows are evaluated")
        return self.target.run_part(self.executor, rows, self.overlay, chosen)


def _ends(rows: TypingSequence[tuple[Sequence, int, list[int]]]) -> list[int]:
    """The end of the rows of each sequence in the batch."""
    return list(accumulate(len(tokens) for _, _, tokens in rows))
