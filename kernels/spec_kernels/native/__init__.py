"""Whole forwards in C on a CPU: weights in the blocks of their file, one call, equal bits for every row.

The extension is optional: without it ``problem`` gives the reason, and models run on ``spec_kernels.model.reference``.
"""

from __future__ import annotations

import functools
import os

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
    """Instruction sets of this processor, the best first, from the one that ``SPEC_INSTRUCTION_SET`` names; none
    without the extension. Raises ValueError if the variable names none of them."""
    sets = () if _native is None else tuple(_native.instruction_sets())
    named = os.environ.get("SPEC_INSTRUCTION_SET")
    if not named or not sets:
        return sets
    if named not in sets:
        reason = f"SPEC_INSTRUCTION_SET={named} is not an instruction set of this processor"
        raise ValueError(f"{reason}; name one of {', '.join(sets)}")
    return sets[sets.index(named) :]
