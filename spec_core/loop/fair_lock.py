"""A fair lock, by which threads share a run."""

from __future__ import annotations

from threading import Lock, get_ident
from typing import Any

from spec_core.toolkit import finalizers


class FairLock:
    """A fair reentrant lock: a waiting thread gets it before the thread that held it last.

    A plain lock is not fair: a thread that steps without pause takes it again before a waiting thread wakes up.
    """

    __slots__ = ("_again", "_holder", "_next", "_now")

    def __init__(self) -> None:
        self._next, self._now = Lock(), Lock()
        self._holder, self._again = 0, 0

    def __enter__(self) -> None:
        me = get_ident()
        if self._holder == me:
            self._again += 1
            return
        finalizers.enter_section()
        try:
            if self._next.locked() or not self._now.acquire(False):
                with self._next:
                    self._now.acquire()
        except BaseException:
            finalizers.leave_section()
            raise
        self._holder = me

    def __exit__(self, *_: Any) -> None:
        if self._again:
            self._again -= 1
        else:
            self._holder = 0
            self._now.release()
            finalizers.leave_section()
