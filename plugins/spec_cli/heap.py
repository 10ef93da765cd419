"""Garbage collection beside what a command keeps until it ends."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Objects that exist now are not searched by the garbage collector meanwhile.

    With torch imported there are a million, and a full collection takes 0.1 seconds, in the middle of some step.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
