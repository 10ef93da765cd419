"""Numbers of a mapped file, read when they are used, so that arrays for each token take no memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

Number = bool | int | float


class Numbers(Sequence[Number]):
    """An array of a GGUF file. stored: a view of the file."""

    __slots__ = ("stored",)

    def __init__(self, stored: np.ndarray[Any, Any]) -> None:
        self.stored = stored

    def __len__(self) -> int:
        return len(self.stored)

    @overload
    def __getitem__(self, at: int) -> Number: ...
    @overload
    def __getitem__(self, at: slice) -> list[Number]: ...
    def __getitem__(self, at: int | slice) -> Number | list[Number]:
        return self.stored[at].tolist()

    def __iter__(self) -> Iterator[Number]:
        return iter(self.stored.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.stored, dtype=dtype)

    def __eq__(self, other: object) -> bool:
        return self.stored.tolist() == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} numbers>"
