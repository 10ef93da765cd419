"""``spec compare``: methods on the same target, prompts and loop, against plain decoding measured in the same run.

From Python: ``compare`` runs one, ``read_outcome`` reads one, ``to_frame`` makes a data frame of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spec_compare.python import compare, read_outcome, to_frame

__all__ = ["compare", "read_outcome", "to_frame"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that the command's help needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spec_compare import python

    return getattr(python, name)
