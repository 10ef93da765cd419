"""A readers-writer lock: many threads use memory in place, and one may replace it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock
from weakref import WeakSet


class ReadersLock:
    """Held by many readers or one writer. Not reentrant.

    A waiting writer goes before later readers, so that threads which read without pause cannot block it.
    """

    def __init__(self) -> None:
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Held by nobody: in the child of a fork, where the threads that held it are not."""
        self._changed = Condition(Lock())
        self._readers = self._writers_waiting = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        taken = 0
        try:
            with self._changed:
                while self._writing or self._writers_waiting:
                    self._changed.wait()
                self._readers, taken = self._readers + 1, 1
            yield
        finally:  # also where Ctrl-C came between the two
            with self._changed:
                self._readers -= taken
                if self._writers_waiting:
                    self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._writers_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
                self._writing = True
            finally:
                self._writers_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


_all: WeakSet[ReadersLock] = WeakSet()


def _free_all() -> None:
    for lock in list(_all):
        lock.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
