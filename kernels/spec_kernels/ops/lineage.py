"""The parent of each row of a batch, for recurrences over chains, trees and several sequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Lineage:
    """R rows of B sequences; the rows of a sequence stand together, parents before children.

    parents: the row each row continues; -1 where it continues a stored state.
    source: per row the stored state its sequence begins with.
    keep: per row the stored state that takes the state after it; -1 where it is not kept. A row may keep into its
        sequence's source once no later row begins there.
    begins: first row of each sequence.
    chunks: (first row, n) of runs of n rows, each continuing the one before, that may be computed together.
    """

    parents: list[int]
    source: list[int]
    keep: list[int]
    begins: list[int]
    chunks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return len(self.parents)

    @cached_property
    def last_child(self) -> dict[int, int]:
        """The last row that continues a row; a row without children is missing."""
        return {parent: row for row, parent in enumerate(self.parents) if parent >= 0}

    @cached_property
    def chain(self) -> bool:
        """One sequence in which every row continues the one before."""
        return len(self.begins) == 1 and self.parents == list(range(-1, self.rows - 1))

    def ends(self) -> list[tuple[int, int]]:
        """(first row, row after the last) of each sequence."""
        return list(zip(self.begins, [*self.begins[1:], self.rows], strict=True))

    def tensor(self, name: str, device: torch.device) -> Tensor:
        """``parents``, ``source``, ``keep`` or ``begins`` as int64 on a device, made once."""
        tensors: dict = self.__dict__.setdefault("_tensors", {})
        if (name, device) not in tensors:
            tensors[name, device] = torch.tensor(getattr(self, name), dtype=torch.int64, device=device)
        return tensors[name, device]

    def taps(self, width: int) -> Tensor:
        """int64 [width, R]: where the ``width`` last inputs of each row are, oldest first, when every sequence's rows
        stand after the ``width`` - 1 inputs that its stored state remembers."""
        taps: dict = self.__dict__.setdefault("_taps", {})
        if width not in taps:
            taps[width] = torch.tensor(self._taps_of(width), dtype=torch.int64).T.contiguous()
        return taps[width]

    def _taps_of(self, width: int) -> list[list[int]]:
        taps: list[list[int]] = []
        for i, (first, end) in enumerate(self.ends()):
            window = first + i * (width - 1)
            for row in range(first, end):
                parent = self.parents[row]
                before = taps[parent][1:] if parent >= 0 else list(range(window, window + width - 1))
                taps.append([*before, row + (i + 1) * (width - 1)])
        return taps
