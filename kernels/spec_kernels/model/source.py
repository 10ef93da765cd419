"""Where the tensors of a description come from: names of GGUF, norm weights as they multiply, ``ssm_a`` negative."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Blocks(NamedTuple):
    """A tensor as it is stored: uint8 [rows, bytes of a row], a view of the file; type as GGUF names it."""

    type: str
    rows: Tensor


class Source(Protocol):
    """Tensors of a model by name."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape in torch order, None when there is no such tensor. Reads no values."""

    def load(self, name: str) -> Tensor:
        """Values as float32, or in the type they are stored in where that is a float type."""

    def blocks(self, name: str) -> Blocks | None:
        """A matrix, or a stack of them, as stored; None where its values are not simply what is stored."""


def has(source: Source, name: str) -> bool:
    return source.shape(name) is not None


class Only:
    """The tensors of a source that have been checked; no others are found."""

    def __init__(self, source: Source, names: frozenset[str]) -> None:
        self.source, self.names = source, names

    def shape(self, name: str) -> tuple[int, ...] | None:
        return self.source.shape(name) if name in self.names else None

    def load(self, name: str) -> Tensor:
        """Raises KeyError where there is no such tensor."""
        if name not in self.names:
            raise KeyError(name)
        return self.source.load(name)

    def blocks(self, name: str) -> Blocks | None:
        return self.source.blocks(name) if name in self.names else None
