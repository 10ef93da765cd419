"""Tensors of a GGUF file, as blocks and as floats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from spec_kernels.model.source import bytes_of
from spec_kernels.ops.dequant import TYPES
from torch import Tensor

from spec_core.errors import Unsupported, UsageError
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.gguf import GgufFile
from spec_targets.formats.stored_names import Stored

BLOCK = re.compile(r"(blk\.[0-9]{1,9}\.)(.+)")


class FusedTensors:
    """Tensors that a file may have as parts of others, in which their rows are in another order: see ``Family``."""

    def __init__(self, fused: Mapping[str, Stored], config: Any) -> None:
        """config: sizes, for conversions."""
        self.fused, self.config = fused, config

    def find_whole(self, name: str, names: Mapping[str, Any]) -> tuple[str, Stored] | None:
        """The tensor that holds ``name``, and the conversion; None without it, or if the file has ``name`` too."""
        match = BLOCK.fullmatch(name)
        stored = self.fused.get(match[2]) if match and name not in names else None
        if match is None or stored is None:
            return None
        return next(((match[1] + one, stored) for one in stored.names if match[1] + one in names), None)

    def take_part(self, name: str, stored: Stored, whole: Tensor) -> Tensor:
        """The part of a tensor. Raises UsageError for a shape that has none."""
        assert stored.change is not None
        try:
            return stored.change(whole, self.config)
        except (RuntimeError, IndexError, ValueError) as error:
            raise UsageError(
                f"tensor {name!r} is stored as {list(whole.shape)}, which does not fit the metadata", hint=AGAIN
            ) from error


class GgufWeights:
    """Weights by their GGUF names."""

    def __init__(
        self,
        file: GgufFile,
        renamed: Mapping[str, str] | None = None,
        interleaved: bool = False,
        tensors: FusedTensors | None = None,
    ) -> None:
        """renamed, interleaved: of the family, see ``architectures.Family``. parts: of its fused tensors."""
        self.file, self.where, self.interleaved = file, file.path.name, interleaved
        self.tensors = {(renamed or {}).get(name, name): tensor for name, tensor in file.tensors.items()}
        self._parts, self._taken = tensors, set[str]()
        self._check_types()

    def _check_types(self) -> None:
        for name, tensor in self.file.tensors.items():
            if tensor.type not in TYPES:
                raise Unsupported(
                    f"{self.where}: tensor {name!r} is of type {tensor.type}, which is not supported",
                    hint=f"quantise the model to one of {', '.join(TYPES)}",
                )

    def names(self) -> Iterable[str]:
        """Without tensors whose parts were found."""
        return [name for name in self.tensors if name not in self._taken]

    def shape(self, name: str) -> tuple[int, ...] | None:
        if (part := self._whole(name)) is not None:
            self._taken.add(part[0])
            return tuple(self._take(part, torch.empty(self.tensors[part[0]].shape, device="meta")).shape)
        tensor = self.tensors.get(name)
        return None if tensor is None else tensor.shape

    def load(self, name: str) -> Tensor:
        if (part := self._whole(name)) is not None:
            return self._take(part, self.tensors[part[0]].load().float())
        return self.tensors[name].load()

    def type(self, name: str) -> str:
        return "F32" if self._whole(name) else self.tensors[name].type

    def nbytes(self, name: str) -> int:
        if (part := self._whole(name)) is not None:
            return self.tensors[part[0]].nbytes // 2
        return self.tensors[name].nbytes

    def blocks(self, name: str) -> Tensor:
        return bytes_of(self.load(name)) if self._whole(name) else self.tensors[name].blocks()

    def _whole(self, name: str) -> tuple[str, Stored] | None:
        return None if self._parts is None else self._parts.find_whole(name, self.tensors)

    def _take(self, part: tuple[str, Stored], whole: Tensor) -> Tensor:
        assert self._parts is not None
        return self._parts.take_part(*part, whole)
