"""Keys and values of one sequence, or latents of both: the reference's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from spec_kernels.model.kept_rows import AHEAD, KeptRows, MarkedRows, round_up
from spec_kernels.model.shapes import HeadShape


class KVCache(KeptRows):
    """Attention rows of all layers for one slot: of each layer keys [K, T, D] and values [K, T, Dv], zeros until
    written. Values of latents are a view of the keys. T is ``length``, or ``recent`` in layers with a window.
    """

    def __init__(
        self,
        shapes: Sequence[HeadShape],
        length: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """shapes: of each layer."""
        super().__init__(shape.window for shape in shapes)
        self.shapes, self.length, self.dtype, self.device = tuple(shapes), length, dtype, torch.device(device)
        self.recent = round_up(min(length, self.window + AHEAD)) if self.window else 0
        self.keys = [self._take(s) for s in self.shapes]
        self.values = [self._values(keys, s) for keys, s in zip(self.keys, self.shapes, strict=True)]

    @property
    def layers(self) -> int:
        return len(self.shapes)

    @property
    def memory(self) -> list[Tensor]:
        """The memory of all layers, each piece once."""
        return [m for layer in range(self.layers) for m in self._pieces(layer)]

    @property
    def nbytes(self) -> int:
        marked = [] if self.marked is None else self.marked.memory
        return sum(m.nbytes for m in (*self.memory, *marked))

    def read(self, layer: int, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys [K, count - start, D] and values [K, count - start, Dv] of a layer's positions start to count - 1.

        Raises ValueError for rows that are not kept.
        """
        first = self.first_of(layer)
        if first:
            self.check_read(start)
        rows = slice(start - first, count - first)
        return self.keys[layer][:, rows], self.values[layer][:, rows]

    def first_of(self, layer: int) -> int:
        """The position that is first in the memory of a layer."""
        return self.first if self.shapes[layer].window else 0

    def grow(self, length: int) -> None:
        """Enlarge to ``length`` positions; contents are kept."""
        old, self.length = self.length, length
        self._replace(lambda shape: not shape.window, slice(0, old))

    def copy(self) -> KVCache:
        """Copy the rows to memory of their own."""
        copy = KVCache(self.shapes, self.length, self.dtype, self.device)
        copy._move(0, max(copy.recent, self.recent))
        copy.first, copy.marked = self.first, self.marked
        for source, target in zip(self.memory, copy.memory, strict=True):
            target[:, : source.shape[1]] = source
        return copy

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        if start < self.first:
            self.check_read(start)
        index = torch.tensor(places, device=self.device)
        for layer in range(self.layers):
            first = self.first_of(layer)
            for m in self._pieces(layer):
                m[:, start - first : start - first + len(places)] = m.index_select(1, index - first)

    def _move(self, first: int, recent: int) -> None:
        kept = slice(first - self.first, self.recent)
        self.first, same, self.recent = first, recent == self.recent, recent
        if not same:
            self._replace(lambda shape: shape.window > 0, kept)
        elif kept.start:
            for m in self._window_memory():
                m[:, : kept.stop - kept.start] = m[:, kept].clone()

    def _copy_out(self, first: int, end: int) -> list[Tensor]:
        return [m[:, first - self.first : end - self.first].clone() for m in self._window_memory()]

    def _copy_in(self, marked: MarkedRows) -> None:
        for m, rows in zip(self._window_memory(), marked.memory, strict=True):
            m[:, : rows.shape[1]] = rows

    def _window_memory(self) -> list[Tensor]:
        """The memory of the layers with a window."""
        return [m for layer in range(self.layers) if self.shapes[layer].window for m in self._pieces(layer)]

    def _pieces(self, layer: int) -> list[Tensor]:
        """The memory of a layer, each piece once."""
        return [self.keys[layer]] if self.shapes[layer].latent else [self.keys[layer], self.values[layer]]

    def _replace(self, is_one: Callable[[HeadShape], bool], kept: slice) -> None:
        """Take new memory for some layers, with these of their places at its beginning."""
        for layer, shape in enumerate(self.shapes):
            if is_one(shape):
                old, keys = self._pieces(layer), self._take(shape)
                self.keys[layer], self.values[layer] = keys, self._values(keys, shape)
                for before, after in zip(old, self._pieces(layer), strict=True):
                    after[:, : kept.stop - kept.start] = before[:, kept]

    def _take(self, shape: HeadShape) -> Tensor:
        """Zeros for a layer. Rollbacks also write there, outside of a forward."""
        places = self.recent if shape.window else self.length
        with torch.inference_mode(False):
            return torch.zeros((shape.kv_heads, places, shape.dim), dtype=self.dtype, device=self.device)

    def _values(self, keys: Tensor, shape: HeadShape) -> Tensor:
        """The values that belong to keys."""
        return keys[..., shape.dim - shape.latent :] if shape.latent else self._take(shape)
