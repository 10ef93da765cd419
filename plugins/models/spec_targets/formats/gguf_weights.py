"""Tensors of a GGUF file, as blocks and as floats."""

from __future__ import annotations

from collections.abc import Iterable

from spec_kernels.ops.dequant import TYPES
from torch import Tensor

from spec_core.errors import Unsupported
from spec_targets.architectures import family_of
from spec_targets.architectures.config import Config
from spec_targets.architectures.decoder import DIVISORS
from spec_targets.formats.gguf import GgufFile


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
        return self.tensors[name].load()

    def type(self, name: str) -> str:
        return self.tensors[name].type

    def nbytes(self, name: str) -> int:
        return self.tensors[name].nbytes

    def blocks(self, name: str) -> Tensor:
        return self.tensors[name].blocks()

    def divisors(self) -> Tensor | None:
        """Frequency divisors of llama3 scaling, if the file has them; a wrong shape is refused later."""
        for name in DIVISORS:
            if self.shape(name) == (self.rotary_dim // 2,):
                return self.load(name)
        return None
