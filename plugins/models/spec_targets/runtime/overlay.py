"""Other weights for rows of a target, as its executors read them."""

from __future__ import annotations

from collections.abc import Mapping

from spec_kernels.layer_executor import FLOATS
from spec_kernels.model.batch import ForwardBatch
from spec_kernels.model.ops import Weight
from spec_kernels.model.overlay import LARGE, PLAIN, TAKEN, OverlayWeights
from spec_kernels.model.source import TensorSource, bytes_of
from torch import Tensor, full

from spec_core.toolkit import LowRank, Overlay

PREFIX = "overlay:"
"""Beginning of the names of an overlay's matrices among the target's."""


class OverlayTensors:
    """The matrices of an overlay, as a ``TensorSource``; others are the lender's."""

    def __init__(self, overlay: Overlay, lender: TensorSource) -> None:
        self.matrices: dict[str, Tensor] = {}
        self.lender = lender
        for name, one in overlay.tensors.items():
            if isinstance(one, LowRank):
                self.matrices[f"{PREFIX}{name}.down"] = one.down
                self.matrices[f"{PREFIX}{name}.up"] = one.up * one.scale
            elif one.dim() > 1:
                self.matrices[PREFIX + name] = one

    def shape(self, name: str) -> tuple[int, ...] | None:
        own = self.matrices.get(name)
        return self.lender.shape(name) if own is None else tuple(own.shape)

    def type(self, name: str) -> str:
        return FLOATS[self.matrices[name].dtype] if name in self.matrices else self.lender.type(name)

    def load(self, name: str) -> Tensor:
        return self.matrices[name].detach() if name in self.matrices else self.lender.load(name)

    def blocks(self, name: str) -> Tensor:
        own = self.matrices.get(name)
        return self.lender.blocks(name) if own is None else bytes_of(own.detach().cpu())


def weights_of(overlay: Overlay) -> OverlayWeights:
    """The weights of an overlay, for a model's description."""
    whole: dict[str, Weight] = {}
    pairs: dict[str, tuple[Weight, Weight]] = {}
    vectors: dict[str, Tensor] = {}
    for name, one in overlay.tensors.items():
        if isinstance(one, LowRank):
            pairs[name] = _matrix(f"{name}.down", one.down), _matrix(f"{name}.up", one.up)
        elif one.dim() == 2:
            whole[name] = _matrix(name, one)
        elif one.dim() == 1:
            vectors[name] = one.detach().float()
        else:
            raise ValueError(f"{name!r} has {one.dim()} dimensions, a matrix or a vector was needed")
    return OverlayWeights(whole, pairs, vectors, mixed=overlay.plain_rows > 0)


def overlay_inputs(overlay: Overlay | None, batch: ForwardBatch) -> Mapping[str, Tensor]:
    """Which rows of a batch take an overlay, as inputs of the model."""
    if overlay is None or not overlay.plain_rows:
        return {}
    taken = full((len(batch.positions), 1), LARGE, device=batch.positions.device)
    for s in batch.sequences:
        taken[s.first : s.first + min(s.rows, overlay.plain_rows)] = -LARGE
    return {TAKEN: taken, PLAIN: -taken}


def _matrix(name: str, matrix: Tensor) -> Weight:
    n, k = matrix.shape
    return Weight(PREFIX + name, n, k)
