"""Recurrent states of all sequences of a target, in one piece of memory that slots take places of."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.model.shapes import DeltaShape


class StatePool:
    """Places for states: matrices [L, N, Hv, Dk, Dv] and convolution windows [L, N, W - 1, C], float32.

    A place holds the state of all L layers after one token. Whoever takes a place gives it back.
    """

    def __init__(self, shape: DeltaShape, layers: int, device: torch.device | str = "cpu") -> None:
        self.shape, self.layers = shape, layers
        s = shape
        self.matrices = torch.zeros(layers, 0, s.value_heads, s.key_dim, s.value_dim, device=device)
        self.windows = torch.zeros(layers, 0, s.kernel - 1, s.channels, device=device)
        self._free: list[int] = []

    @property
    def places(self) -> int:
        return self.matrices.shape[1]

    def take(self, count: int = 1) -> list[int]:
        """Places with any content."""
        missing = count - len(self._free)
        if missing > 0:
            self._grow(missing)
        return [self._free.pop() for _ in range(count)]

    def give(self, places: list[int]) -> None:
        self._free += places

    def clear(self, place: int) -> None:
        """The state before the first token."""
        self.matrices[:, place].zero_()
        self.windows[:, place].zero_()

    def copy(self, place: int) -> tuple[Tensor, Tensor]:
        """A state as tensors of its own: matrices [L, Hv, Dk, Dv], windows [L, W - 1, C]."""
        return self.matrices[:, place].clone(), self.windows[:, place].clone()

    def put(self, place: int, state: tuple[Tensor, Tensor]) -> None:
        self.matrices[:, place], self.windows[:, place] = state

    def _grow(self, count: int) -> None:
        old = self.places
        self._free += range(old + count - 1, old - 1, -1)
        with torch.inference_mode(False):  # rollbacks write here too, outside of a forward
            self.matrices, self.windows = (self._longer(m, count) for m in (self.matrices, self.windows))

    def _longer(self, m: Tensor, count: int) -> Tensor:
        return torch.cat([m, torch.zeros(self.layers, count, *m.shape[2:], device=m.device)], dim=1)
