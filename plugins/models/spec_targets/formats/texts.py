"""Texts of a mapped file, made when they are read, so that a large vocabulary takes no memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import overload

from spec_targets.formats.native import module

BLOCK = 8192
"""Texts that are made at once."""


class Texts(Sequence[str]):
    """Texts of a GGUF file, each stored after its length in 8 bytes; made from the bytes at every access.

    data: the file    start: where the first length is    ends: where each text ends, checked to lie in the file
    """

    __slots__ = ("data", "ends", "start")

    def __init__(self, data: memoryview, start: int, ends: array[int]) -> None:
        self.data, self.start, self.ends = data, start, ends

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        places = range(len(self.ends))[at]
        if isinstance(places, range):
            return [self[i] for i in places]
        start = self.ends[places - 1] if places else self.start
        return str(self.data[start + 8 : self.ends[places]], "utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(self._block, range(0, len(self.ends), BLOCK)))

    def _block(self, first: int) -> list[str]:
        """BLOCK texts from ``first`` on."""
        start = self.ends[first - 1] if first else self.start
        return read_texts(self.data, start, self.ends[first : first + BLOCK])

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} texts>"


def read_texts(data: memoryview, start: int, ends: array[int]) -> list[str]:
    """The texts that end there, in C if possible. start: where the length of the first one is."""
    if module is not None:
        return module.read_texts(data, start, ends)
    return [str(data[begin + 8 : end], "utf-8", "replace") for begin, end in pairwise([start, *ends])]
