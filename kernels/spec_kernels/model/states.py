"""Recurrent states of all sequences of a target, in places that are assigned to slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from spec_kernels.model.readers import ReadersLock
from spec_kernels.model.shapes import RecurrentShape


class StatePlaces(ABC):
    """Places for states, numbered. A place holds the state of all L layers after one token: the matrices of gated
    delta nets, and the windows of convolutions. Short convolutions have no matrices: theirs are empty.

    A place that is taken must be given back. Several threads may use the places of one target, each its own.
    """

    def __init__(self, shape: RecurrentShape, layers: int) -> None:
        self.shape, self.layers = shape, layers
        self._free: list[int] = []
        self._lock = ReadersLock()

    @property
    @abstractmethod
    def places(self) -> int:
        """Number of places."""

    @abstractmethod
    def state(self, place: int) -> tuple[Tensor, Tensor]:
        """The memory of a place, float32: matrices [L, Hv, Dk, Dv], windows [L, W - 1, C]. Within ``steady``."""

    @abstractmethod
    def _add(self, count: int) -> None:
        """Add at least ``count`` places."""

    def take(self, count: int = 1) -> list[int]:
        """Places with undefined content. Not within ``steady``."""
        taken: list[int] = []
        try:
            while len(taken) < count:
                try:
                    taken.append(self._free.pop())
                except IndexError:  # another thread may take the places added here
                    self._grow(count - len(taken))
        except BaseException:
            self.give(taken)
            raise
        return taken

    def give(self, places: list[int]) -> None:
        """Give places back without a lock: the garbage collector may call it."""
        self._free.extend(places)

    def steady(self) -> AbstractContextManager[None]:
        """Lock under which memory of states is not replaced. Must not be nested."""
        return self._lock.reading()

    def clear(self, place: int) -> None:
        """Set the state before the first token."""
        with self.steady():
            for memory in self.state(place):
                memory.zero_()

    def copy(self, place: int) -> tuple[Tensor, Tensor]:
        """A copy of a state, of the shapes of ``state``."""
        with self.steady():
            matrices, windows = self.state(place)
            return matrices.clone(), windows.clone()

    def put(self, place: int, state: tuple[Tensor, Tensor]) -> None:
        with self.steady():
            for memory, values in zip(self.state(place), state, strict=True):
                memory.copy_(values)

    def _grow(self, count: int) -> None:
        with self._lock.writing(), torch.inference_mode(False):  # rollbacks also write here, outside of a forward
            old = self.places
            self._add(count)
            self.give(list(range(self.places - 1, old - 1, -1)))


class StatePool(StatePlaces):
    """Places in two tensors: matrices [L, N, Hv, Dk, Dv] and convolution windows [L, N, W - 1, C], float32.

    Growing replaces both, so reads and writes, a forward's too, happen within ``steady``.
    """

    def __init__(self, shape: RecurrentShape, layers: int, device: torch.device | str = "cpu") -> None:
        super().__init__(shape, layers)
        self.matrices = torch.zeros(layers, 0, *shape.matrices, device=device)
        self.windows = torch.zeros(layers, 0, shape.kernel - 1, shape.channels, device=device)

    @property
    def places(self) -> int:
        return self.matrices.shape[1]

    def state(self, place: int) -> tuple[Tensor, Tensor]:
        return self.matrices[:, place], self.windows[:, place]

    def _add(self, count: int) -> None:
        self.matrices, self.windows = (self._longer(m, count) for m in (self.matrices, self.windows))

    def _longer(self, m: Tensor, count: int) -> Tensor:
        return torch.cat([m, torch.zeros(self.layers, count, *m.shape[2:], device=m.device)], dim=1)
