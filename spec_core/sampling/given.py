"""Numbers and lists as users give them: Python's, numpy's, and whatever else counts or measures. A bool is neither."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from operator import index
from typing import Any

import torch

COUNTS = 1 << 63
"""What is counted is below it: it fits the native forms."""


def whole(value: Any) -> int | None:
    """The whole number that ``value`` is, of whatever type; None where it is none."""
    if isinstance(value, bool) or (isinstance(value, torch.Tensor) and (value.dim() or value.dtype == torch.bool)):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def real(value: Any) -> float | None:
    """The number that ``value`` is, of whatever type, infinite and NaN too; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def ints(values: Iterable[int]) -> frozenset[int]:
    return frozenset(values)


def strings(values: str | Iterable[str]) -> tuple[str, ...]:
    """One text stands for a list of one."""
    return (values,) if isinstance(values, str) else tuple(values)
