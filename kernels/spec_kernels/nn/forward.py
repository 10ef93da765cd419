"""What all layers of one forward share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spec_kernels.nn.heads import HeadScratch, HeadShape
from spec_kernels.nn.mlp import MlpScratch
from spec_kernels.nn.recurrence import Recurrence
from spec_kernels.nn.window import Entry, Stretch, windows


class Heads:
    """Scratch of one head shape, and how this forward's stretches enter their caches and attend."""

    __slots__ = ("_entries", "_windows", "scratch")

    def __init__(self, scratch: HeadScratch, stretches: Sequence[Stretch]) -> None:
        self.scratch = scratch
        self._entries = [Entry(scratch, s) for s in stretches]
        self._windows = [w for s in stretches for w in windows(scratch, s)]

    def attend(self, layer: int) -> None:
        """From q, k and v in the scratch to its ``out``. All rows are stored before anyone looks."""
        for entry in self._entries:
            entry.store(layer)
        for window in self._windows:
            window.attend(layer)


class Scratch:
    """Buffers for forwards of one number of rows, by the shape of what uses them."""

    def __init__(self, rows: int, dtype: torch.dtype, device: torch.device) -> None:
        self.rows, self.dtype, self.device = rows, dtype, device
        self._heads: dict[HeadShape, HeadScratch] = {}
        self._mlp: dict[int, MlpScratch] = {}

    def heads(self, shape: HeadShape) -> HeadScratch:
        if shape not in self._heads:
            self._heads[shape] = HeadScratch(shape, self.rows, self.dtype, self.device)
        return self._heads[shape]

    def mlp(self, width: int) -> MlpScratch:
        if width not in self._mlp:
            self._mlp[width] = MlpScratch(self.rows, width, self.dtype, self.device)
        return self._mlp[width]


class Forward:
    """One pass: rotation complex64 [R, 1, Dk / 2], who attends over what, recurrent states, and scratch memory.

    rows: those of the stretches; rows of ``rotation`` behind them fill the last tile.
    """

    __slots__ = ("_heads", "_stretches", "recurrence", "rotation", "rows", "scratch")

    def __init__(
        self,
        rotation: Tensor,
        stretches: Sequence[Stretch],
        scratch: Scratch,
        recurrence: Recurrence | None = None,
    ) -> None:
        """recurrence: None where no layer is recurrent."""
        self.rotation, self.scratch, self.recurrence = rotation, scratch, recurrence
        self._stretches = stretches
        self.rows = sum(s.rows for s in stretches)
        self._heads: dict[HeadShape, Heads] = {}

    def heads(self, shape: HeadShape) -> Heads:
        """Made by the first layer of that shape, used again by the others."""
        made = self._heads.get(shape)
        if made is None:
            made = self._heads[shape] = Heads(self.scratch.heads(shape), self._stretches)
        return made
