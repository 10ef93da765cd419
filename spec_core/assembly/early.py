"""What packages do before torch is imported: libraries below it read their settings once, when they are loaded."""

from __future__ import annotations

import functools
import warnings
from importlib import metadata

EARLY = "spec_core.early"
"""Entry points of functions without arguments that import no torch."""


@functools.cache
def prepare() -> None:
    """Call each of them, once. One that fails is named in a warning: what it would have set is not needed to run."""
    for point in metadata.entry_points(group=EARLY):
        try:
            point.load()()
        except Exception as error:
            warnings.warn(f"{EARLY} {point.name!r} failed: {type(error).__name__}: {error}", stacklevel=2)
