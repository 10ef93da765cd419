"""Functions that triton kernels call; triton itself is imported by the first of them."""

from __future__ import annotations

import os
from typing import Any


def is_interpreted() -> bool:
    """Whether triton's interpreter is on, in which kernels run on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


INTERPRETED = is_interpreted()
"""Whether kernels run in triton's interpreter, on CPU tensors."""


def device_function(function: Any) -> Any:
    """A function that kernels call. The interpreter runs a plain one faster."""
    if INTERPRETED:
        return function
    import triton

    return triton.jit(function)
