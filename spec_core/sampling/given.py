"""Numbers and lists from users: of Python, numpy or any other numeric type. A bool is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from operator import index
from typing import Any

import torch

COUNTS = 1 << 63
"""Counts must be below this, to fit the native code."""


def whole_number(value: Any) -> int | None:
    """The integer value of any integer type; None for anything else."""
    if isinstance(value, bool) or (isinstance(value, torch.Tensor) and (value.dim() or value.dtype == torch.bool)):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def real_number(value: Any) -> float | None:
    """The value of any real number type, infinite and NaN included; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def ints(values: Iterable[int]) -> frozenset[int]:
    return frozenset(values)


def strings(values: str | Iterable[str]) -> tuple[str, ...]:
    """A tuple of texts; a single text becomes a tuple of one."""
    return (values,) if isinstance(values, str) else tuple(values)
