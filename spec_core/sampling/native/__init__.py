"""The choice of a token in C, bit-equal to ``spec_core.sampling.reference``.

The extension is optional: without it ``problem`` gives the reason, and the reference is used.
"""

from __future__ import annotations

import importlib
from typing import Any

from spec_core.sampling.instruction_set import allowed_sets

module: Any
"""The extension; None without it."""
try:
    module = importlib.import_module("spec_core.sampling.native._choice")
except ImportError:
    module = None
else:
    module.use(allowed_sets(module.instruction_sets())[0])


def problem() -> str | None:
    """Why the extension is not used; None if it is."""
    if module is not None:
        return None
    return "the extension was not built: install spec-core with a C compiler"


def fact() -> str:
    """The implementation that chooses tokens here, for ``spec env``."""
    if module is None:
        return f"in Python, the same tokens, slower; the native code is not used: {problem()}"
    best, *others = allowed_sets(module.instruction_sets())
    return f"native ({best}; equal tokens with {', '.join([*others, 'Python'])})"
