"""Tensors of a GGUF file, as blocks and as floats."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from spec_kernels.ops.dequant import TYPES, dequantize
from torch import Tensor

from spec_core.errors import Unsupported
from spec_targets.architectures import family_of
from spec_targets.architectures.config import Config
from spec_targets.formats.gguf import GgufFile, TensorInfo
from spec_targets.target.decoder import DIVISORS

PIECE = 1 << 22
"""Values dequantised at a time; temporary memory is a multiple of this."""


def floats(tensor: TensorInfo) -> Tensor:
    """Values as float32, dequantised."""
    data = tensor.bytes().flatten(0, -2) if len(tensor.shape) > 1 else tensor.bytes().view(1, -1)
    out = torch.empty(len(data), tensor.shape[-1])
    step = max(1, PIECE // tensor.shape[-1])
    for row in range(0, len(data), step):
        out[row : row + step] = dequantize(data[row : row + step], tensor.type)
    return out.view(tensor.shape)


class GgufWeights:
    """Weights by their GGUF names."""

    def __init__(self, file: GgufFile, config: Config) -> None:
        self.file = file
        self.where = file.path.name
        self.rotary_dim = config.rotary_dim
        family = family_of(config.arch)
        self.interleaved = family.interleaved
        self.tensors = {family.renamed.get(name, name): tensor for name, tensor in file.tensors.items()}
        self._check_types()

    def _check_types(self) -> None:
        for name, tensor in self.file.tensors.items():
            if tensor.type not in TYPES:
                raise Unsupported(
                    f"{self.where}: tensor {name!r} is of type {tensor.type}, which is not supported",
                    hint=f"quantise the model to one of {', '.join(TYPES)}",
                )

    def names(self) -> Iterable[str]:
        return self.tensors

    def shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self.tensors.get(name)
        return None if tensor is None else tensor.shape

    def load(self, name: str) -> Tensor:
        return floats(self.tensors[name])

    def type(self, name: str) -> str:
        return self.tensors[name].type

    def nbytes(self, name: str) -> int:
        return self.tensors[name].nbytes

    def blocks(self, name: str) -> Tensor:
        data = self.tensors[name].bytes()
        return data.reshape(-1, data.shape[-1])

    def divisors(self) -> torch.Tensor | None:
        """Frequency divisors of llama3 scaling, if the file has them; a wrong shape is refused later."""
        for name in DIVISORS:
            if self.shape(name) == (self.rotary_dim // 2,):
                return self.load(name)
        return None
