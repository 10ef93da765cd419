"""``SPEC_INSTRUCTION_SET``: the best instruction set that compiled code may use, for tests and comparisons."""

from __future__ import annotations

import os
from collections.abc import Sequence

from spec_core.errors import UsageError

VARIABLE = "SPEC_INSTRUCTION_SET"


def allowed(sets: Sequence[str]) -> tuple[str, ...]:
    """sets: those of this processor, the best first. Without those before the one that the variable names.

    Code that has no form of its own for the dot products of a set counts as the plain set: ``avx512`` for
    ``avx512vnni``. Raises UsageError where the variable names none of them."""
    name = os.environ.get(VARIABLE)
    if not name:
        return tuple(sets)
    found = name if name in sets else name.removesuffix("vnni")
    if found not in sets:
        reason = f"{VARIABLE}={name} is not an instruction set of this processor"
        raise UsageError(reason, hint=f"name one of {', '.join(sets)}")
    return tuple(sets[sets.index(found) :])
