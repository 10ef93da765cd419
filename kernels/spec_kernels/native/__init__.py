"""Whole forwards in C on a CPU: weights in the blocks of their file, one call, equal bits for every row.

The extension is optional: without it ``problem`` gives the reason, and models run on ``spec_kernels.model.reference``.
"""

from __future__ import annotations

import functools

try:
    from spec_kernels.native import _native  # type: ignore[attr-defined]
except ImportError:
    _native = None

TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32")
"""Types of weights in the order of ``enum spec_type``."""
CACHES = ("float32", "float16", "q8")
"""Types of caches in the order of ``enum spec_cache_kind``."""
ACTIVATIONS = {"int15": 15, "int8": 8}
"""Bits of rows in products with quantised weights."""


def module():
    """The extension. Raises RuntimeError if there is none."""
    if _native is None:
        raise RuntimeError(problem())
    return _native


def problem() -> str | None:
    """Why nothing runs natively here; None if it does."""
    if _native is not None:
        return None
    return "the extension was not built: installing spec-core needs a C compiler for that"


@functools.cache
def instruction_sets() -> tuple[str, ...]:
    """The instruction sets of this processor, best first; none without the extension."""
    return () if _native is None else tuple(_native.instruction_sets())
