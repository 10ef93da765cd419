"""Frees a target's memory when its user is garbage collected.

The garbage collector may run at any moment, in any thread: also while this thread is inside a target that holds a
lock, where closing a slot would deadlock. Therefore a thread that is inside a run closes dropped slots when it leaves
the run.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.target import Target
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.stop import Stop

log = logging.getLogger("spec_core")


class _Thread(local):
    """depth: number of runs that this thread is inside of."""

    depth = 0


_thread = _Thread()
_dropped: deque[tuple[Target, Slot]] = deque()


@contextmanager
def defer_finalizers() -> Iterator[None]:
    """Mark this thread as calling targets; slots dropped meanwhile are closed afterwards."""
    enter_section()
    try:
        yield
    finally:
        leave_section()


def enter_section() -> None:
    _thread.depth += 1


def leave_section() -> None:
    _thread.depth -= 1
    if _dropped and not _thread.depth:
        _close_dropped()


def close_on_collect(owner: Any, target: Target, slots: Iterable[Slot]) -> weakref.finalize[Any, Any]:
    """Close the slots when the owner is garbage collected. Nothing is closed at exit.

    slots: iterated at that moment; neither it nor the target may refer to the owner.
    """
    finalizer = weakref.finalize(owner, _drop, target, slots)
    finalizer.atexit = False
    return finalizer


def close_slot(target: Target, slot: Slot) -> None:
    """Free the memory of a slot, and drop the data of plugins and checkpoints in it."""
    if slot.state is not None:
        target.close(Sequence([], 0, 0, Sampling(), Stop(), slot=slot))
    slot.state, slot.evaluated, slot.stash = None, 0, type(slot.stash)()
    for kept in (slot.tokens, slot.checkpoints, slot.seen):
        kept.clear()


def _drop(target: Target, slots: Iterable[Slot]) -> None:
    _dropped.extend((target, slot) for slot in slots)
    if not _thread.depth:
        _close_dropped()


def _close_dropped() -> None:
    """Close dropped slots. Errors are logged, since no caller could handle them."""
    enter_section()
    try:
        while _dropped:
            target, slot = _dropped.popleft()
            try:
                close_slot(target, slot)
            except Exception:
                log.warning("%s could not close a slot", target.info.name, exc_info=True)
    except IndexError:  # another thread took it first
        pass
    finally:
        _thread.depth -= 1
