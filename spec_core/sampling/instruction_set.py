"""``SPEC_INSTRUCTION_SET``: the best instruction set that compiled code may use, for tests and comparisons."""

from __future__ import annotations

import os
from collections.abc import Sequence

from spec_core.errors import UsageError

VARIABLE = "SPEC_INSTRUCTION_SET"
PLAIN = {"avx512vnni": "avx512", "avxvnni": "avx2", "i8mm": "neon"}
"""Sets with more kinds of dot products, and what code without them uses in their place."""


def allowed_sets(sets: Sequence[str]) -> tuple[str, ...]:
    """sets: of this processor, the best first. Leaves out what comes before the one that the variable names.

    A set that is not among ``sets`` stands for its plain one: ``avx512vnni`` for ``avx512``. Raises UsageError
    where the variable names none of them."""
    name = os.environ.get(VARIABLE)
    if not name:
        return tuple(sets)
    chosen = name if name in sets else PLAIN.get(name)
    if chosen not in sets:
        reason = f"{VARIABLE}={name} is not an instruction set of this processor"
        raise UsageError(reason, hint=f"name one of {', '.join(sets)}")
    return tuple(sets[sets.index(chosen) :])
