"""The tensors of a description: GGUF names, norm weights as factors, ``ssm_a`` negative."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import torch
from torch import Tensor

from spec_kernels.model.deferred import defer_tensor

Shape = tuple[int, ...]
FLOATS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
"""Types of tensors that are not quantised, by GGUF's names."""


class TensorSource(Protocol):
    """Tensors of a model by name."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape in torch order, None if there is no such tensor. Reads no values."""

    def type(self, name: str) -> str:
        """Storage type, by GGUF's names (``Q4_K``, ``BF16``). Reads no values."""

    def load(self, name: str) -> Tensor:
        """Values as float32, or in their stored type if that is a float type."""

    def blocks(self, name: str) -> Tensor:
        """The bytes of one or more consecutive matrices, uint8 [rows, bytes of a row]."""


def has_tensor(source: TensorSource, name: str) -> bool:
    return source.shape(name) is not None


class ShapeRecorder:
    """Notes which tensors a description reads, and their shapes. Values are deferred: see ``model.deferred``.

    wanted: the shapes by name, in reading order. compare: called with the name, the shape found in ``source`` and the
    shape wanted, before anything is computed from that shape.
    """

    def __init__(self, source: TensorSource, compare: Callable[[str, Shape | None, Shape], None] | None = None) -> None:
        self.source, self.compare = source, compare
        self.wanted: dict[str, Shape] = {}

    def require(self, name: str, shape: Shape) -> None:
        if self.compare is not None and name not in self.wanted:
            self.compare(name, self.source.shape(name), shape)
        self.wanted[name] = shape

    def shape(self, name: str) -> Shape | None:
        return self.wanted[name] if name in self.wanted else self.source.shape(name)

    def type(self, name: str) -> str:
        return self.source.type(name)

    def load(self, name: str) -> Tensor:
        return defer_tensor(self.wanted[name], lambda: self.source.load(name))

    def blocks(self, name: str) -> Tensor:
        raise NotImplementedError("a recorder has no values")


class LoadedTensors:
    """Tensors in memory, float32, float16 or bfloat16, for instance from a safetensors file."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    def shape(self, name: str) -> tuple[int, ...] | None:
        return tuple(self.tensors[name].shape) if name in self.tensors else None

    def type(self, name: str) -> str:
        return FLOATS[self.tensors[name].dtype]

    def load(self, name: str) -> Tensor:
        return self.tensors[name]

    def blocks(self, name: str) -> Tensor:
        return bytes_of(self.tensors[name])


class TensorSubset:
    """The checked tensors of a source; others are not found."""

    def __init__(self, source: TensorSource, names: Collection[str], lender: TensorSource | None = None) -> None:
        """lender: source of tensors with other names."""
        self.source, self.names, self.lender = source, frozenset(names), lender

    def shape(self, name: str) -> tuple[int, ...] | None:
        if name not in self.names:
            return None if self.lender is None else self.lender.shape(name)
        return self.source.shape(name)

    def type(self, name: str) -> str:
        return self._holder(name).type(name)

    def load(self, name: str) -> Tensor:
        return self._holder(name).load(name)

    def blocks(self, name: str) -> Tensor:
        return self._holder(name).blocks(name)

    def _holder(self, name: str) -> TensorSource:
        """The source of a tensor. Raises KeyError if there is none."""
        if name in self.names:
            return self.source
        if self.lender is None:
            raise KeyError(name)
        return self.lender


class Prefixed:
    """Tensors of a source under prefixed names, which cannot clash with the lender's."""

    def __init__(self, source: TensorSource, prefix: str, lender: TensorSource) -> None:
        self.source, self.prefix, self.lender = source, prefix, lender

    def shape(self, name: str) -> tuple[int, ...] | None:
        holder, own = self._holder(name)
        return holder.shape(own)

    def type(self, name: str) -> str:
        holder, own = self._holder(name)
        return holder.type(own)

    def load(self, name: str) -> Tensor:
        holder, own = self._holder(name)
        return holder.load(own)

    def blocks(self, name: str) -> Tensor:
        holder, own = self._holder(name)
        return holder.blocks(own)

    def _holder(self, name: str) -> tuple[TensorSource, str]:
        is_own = name.startswith(self.prefix)
        return (self.source, name.removeprefix(self.prefix)) if is_own else (self.lender, name)


def bytes_of(tensor: Tensor) -> Tensor:
    """A float tensor in the format of ``blocks``: uint8 [rows, bytes of a row]."""
    return tensor.reshape(-1, tensor.shape[-1]).contiguous().view(torch.uint8)
