"""The choice of a token in C: the same tokens as ``spec_core.sampling.reference``, to the bit.

The extension is optional: without it ``problem`` says why, and the reference does everything.
"""

from __future__ import annotations

from spec_core.sampling.instruction_set import allowed

try:
    from spec_core.sampling.native import _choice as module  # type: ignore[attr-defined]
except ImportError:
    module = None
else:
    module.use(allowed(module.instruction_sets())[0])


def problem() -> str | None:
    """Why nothing is chosen natively here, in words."""
    if module is not None:
        return None
    return "the extension was not built: installing spec-core needs a C compiler for that"


def fact() -> str:
    """What chooses tokens here, for ``spec env``."""
    if module is None:
        return f"in Python, the same tokens in more time; not natively: {problem()}"
    best, *others = allowed(module.instruction_sets())
    return f"native ({best}; equal tokens with {', '.join([*others, 'Python'])})"
