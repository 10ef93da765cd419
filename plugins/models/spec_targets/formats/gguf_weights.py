"""Tensors of a GGUF file, as blocks and as floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spec_kernels.ops.dequant import TYPES
from torch import Tensor

from spec_core.errors import Unsupported
from spec_targets.formats.gguf import GgufFile


class GgufWeights:
    """Weights by their GGUF names."""

    def __init__(self, file: GgufFile, renamed: Mapping[str, str] | None = None, interleaved: bool = False) -> None:
        """renamed, interleaved: of the family, see ``architectures.Family``."""
        self.file, self.where, self.interleaved = file, file.path.name, interleaved
        self.tensors = {(renamed or {}).get(name, name): tensor for name, tensor in file.tensors.items()}
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
