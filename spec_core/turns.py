"""Threads take turns at a run."""

from __future__ import annotations

from threading import Lock, get_ident
from typing import Any


class Turns:
    """A lock that is handed on: who waits goes before who had the last turn. The thread that has it may take it again.

    A plain lock is not enough: a thread that steps without pause takes it back before anybody who waits is awake.
    """

    def __init__(self) -> None:
        self._next, self._now = Lock(), Lock()
        self._holder, self._depth = 0, 0

    def __enter__(self) -> None:
        me = get_ident()
        if self._holder != me:
            with self._next:
                self._now.acquire()
            self._holder = me
        self._depth += 1

    def __exit__(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = 0
            self._now.release()
