"""Tensors of a GGUF file as floats."""

from __future__ import annotations

import torch
from spec_kernels.ops.dequant import TYPES, dequantize
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.files.gguf import GgufFile
from spec_targets.runtime.config import Config, arch_of


class GgufWeights:
    """Weights by their own names."""

    def __init__(self, file: GgufFile, config: Config) -> None:
        self.file = file
        self.where = file.path.name
        self.neighbours = arch_of(config.arch, self.where).permuted
        self._check_types()

    def _check_types(self) -> None:
        for name, tensor in self.file.tensors.items():
            if tensor.type not in TYPES and tensor.type not in ("I8", "I16", "I32", "I64"):
                raise UsageError(
                    f"{self.where}: tensor {name!r} is of type {tensor.type}, which is not supported",
                    mend=f"quantise the model to one of {', '.join(TYPES)}",
                )

    def shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self.file.tensors.get(name)
        return None if tensor is None else tensor.shape

    def load(self, name: str) -> Tensor:
        tensor = self.file.tensors[name]
        return dequantize(tensor.bytes(), tensor.type).reshape(tensor.shape)

    def divisors(self) -> torch.Tensor | None:
        """Frequency divisors of llama3 scaling, where the file has them."""
        for name in ("rope_freqs.weight", "blk.0.rope_freqs.weight"):
            if self.shape(name) is not None:
                return self.load(name)
        return None
