"""Giving a target's memory back when whoever used it is gone.

The garbage collector may find that a run is gone at any moment, in any thread: also while this thread is inside of a
target that holds a lock, and would wait for itself if it were asked to close a slot. So a thread that is inside of a
run closes what was dropped when it leaves.
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
    """depth: how many runs this thread is inside of."""

    depth = 0


_thread = _Thread()
_dropped: deque[tuple[Target, Slot]] = deque()


@contextmanager
def inside() -> Iterator[None]:
    """This thread calls targets; what is dropped meanwhile is closed afterwards."""
    enter()
    try:
        yield
    finally:
        leave()


def enter() -> None:
    _thread.depth += 1


def leave() -> None:
    _thread.depth -= 1
    if _dropped and not _thread.depth:
        _close_dropped()


def when_gone(owner: Any, target: Target, slots: Iterable[Slot]) -> weakref.finalize:
    """Close the slots when nobody holds the owner any longer, none of them before. At exit nothing is closed.

    slots: read then; neither it nor the target may hold the owner.
    """
    made = weakref.finalize(owner, _drop, target, slots)
    made.atexit = False
    return made


def close(target: Target, slot: Slot) -> None:
    """Give back the memory of a slot, and drop what plugins and checkpoints keep of it."""
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
    """Nobody is there to whom an error could be raised."""
    enter()
    try:
        while _dropped:
            target, slot = _dropped.popleft()
            try:
                close(target, slot)
            except Exception:
                log.warning("%s could not close a slot", target.info.name, exc_info=True)
    except IndexError:  # another thread was faster
        pass
    finally:
        _thread.depth -= 1
