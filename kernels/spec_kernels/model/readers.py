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
        """Make the lock free, as in the child of a fork, where the threads that held it are not."""
        self._held = Lock()
        self._changed = Condition(self._held)
        self._readers = self._writers_waiting = 0
        self._writing = False

    def reading(self) -> Reading:
        return Reading(self)

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


class Reading:
    """One reader of a lock. Not a generator, because every forward of a hybrid enters one."""

    __slots__ = ("_lock", "_taken")

    def __init__(self, lock: ReadersLock) -> None:
        self._lock, self._taken = lock, 0

    def __enter__(self) -> None:
        lock = self._lock
        with lock._held:
            while lock._writing or lock._writers_waiting:
                lock._changed.wait()
            lock._readers, self._taken = lock._readers + 1, 1

    def __exit__(self, *_: object) -> None:
        lock = self._lock
        with lock._held:
            lock._readers, self._taken = lock._readers - self._taken, 0
            if lock._writers_waiting:
                lock._changed.notify_all()

    def __del__(self) -> None:  # Ctrl-C came between ``__enter__`` and the block
        if self._taken:
            self.__exit__()


_all: WeakSet[ReadersLock] = WeakSet()


def _free_all() -> None:
    for lock in list(_all):
        lock.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
