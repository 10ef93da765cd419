"""Recurrent states of all sequences, in memory that grows without moving: captured steps hold addresses.

The state of a layer is its matrices [Hv, Dk, Dv], which short convolutions do not have, and then its window
[W - 1, C]; a place holds the states of all layers.
Kernels find it by an offset from the first place.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from spec_kernels.model.shapes import DeltaShape, RecurrentShape
from spec_kernels.model.states import StatePlaces

CHUNK_BYTES = 256 << 20
"""Memory that is taken at once, unless a place is larger."""
CHUNK_PLACES = 16
"""Max places of it, unless more are requested."""
ALIGNED = 4
"""Numbers of a layer are a multiple of this, so that no offset is -1 and kernels read 16 bytes at once."""


class StateChunks(StatePlaces):
    """Places in chunks of memory.

    memory: float32 [L, layer_size], the first place. key_of: int64 [Hv], the key head of each value head, None without
    matrices. offsets: int64 [places + 1], numbers from the first place to each; the last is -1, so that a place of -1
    has the offset -1.
    """

    def __init__(self, shape: RecurrentShape, layers: int, device: torch.device) -> None:
        super().__init__(shape, layers)
        self.device = device
        self.key_of = shape.key_of(device) if isinstance(shape, DeltaShape) else None
        self._matrices_size = math.prod(shape.matrices)
        self._states: list[Tensor] = []
        self._grow(1)
        self.memory = self._states[0]

    @property
    def layer_size(self) -> int:
        return -(-self.shape.state_bytes // 4 // ALIGNED) * ALIGNED

    @property
    def places(self) -> int:
        return len(self._states)

    def state(self, place: int) -> tuple[Tensor, Tensor]:
        return self._split(self._states[place])

    def of_layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Matrices [1, Hv, Dk, Dv] and window [1, W - 1, C] of the first place."""
        return self._split(self.memory[layer : layer + 1])

    def _split(self, layers: Tensor) -> tuple[Tensor, Tensor]:
        s = self.shape
        matrices, windows, _ = layers.tensor_split([self._matrices_size, s.state_bytes // 4], 1)
        return matrices.unflatten(1, s.matrices), windows.unflatten(1, (s.kernel - 1, -1))

    def _add(self, count: int) -> None:
        usual = min(CHUNK_PLACES, CHUNK_BYTES // (4 * self.layers * self.layer_size))
        chunk = torch.zeros(max(count, usual), self.layers, self.layer_size, device=self.device)
        self._states += chunk.unbind()
        first = self._states[0].data_ptr()
        offsets = [(state.data_ptr() - first) // chunk.itemsize for state in self._states]
        self.offsets = np.array([*offsets, -1])
