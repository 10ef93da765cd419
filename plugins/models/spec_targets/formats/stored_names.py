"""Where Hugging Face checkpoints have a tensor, and how it becomes GGUF's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from torch import Tensor


@attrs.frozen
class Stored:
    """Place of a tensor in Hugging Face checkpoints, and its conversion.

    names: alternatives, the first that exists counts. They follow the prefix of the block or of the model; one that
    begins with ``/`` is whole. ``{}`` stands for the number of an expert: one tensor for each, which are stacked.
    change: from the stored tensor to GGUF's; it is also called with tensors without values, for their shape.
    """

    names: tuple[str, ...]
    change: Callable[[Tensor, Any], Tensor] | None = None


Name = str | Stored


def stored_as(*names: str, change: Callable[[Tensor, Any], Tensor] | None = None) -> Stored:
    return Stored(names, change)


def plus_one(names: Mapping[str, Name], *but: str) -> dict[str, Name]:
    """Names for checkpoints that store the weights of norms less 1. but: norms that they store whole."""
    return {
        name: Stored((where,), add_one) if isinstance(where, str) and "norm" in name and name not in but else where
        for name, where in names.items()
    }


def add_one(value: Tensor, config: Any) -> Tensor:
    return value.float() + 1
