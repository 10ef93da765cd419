"""Measures how long an event loop is held: the CPU time of its thread in one callback, which a busy machine does not
change."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any

import attrs


@attrs.define
class Longest:
    """Seconds of the longest callback of a loop since ``reset``, and what it was."""

    seconds: float = 0.0
    callback: str = ""

    def reset(self) -> None:
        self.seconds, self.callback = 0.0, ""

    def note(self, seconds: float, handle: Any) -> None:
        if seconds > self.seconds:
            self.seconds, self.callback = seconds, repr(handle)[:300]


@contextmanager
def loop_monitor(thread: int) -> Iterator[Longest]:
    """Measure the callbacks of the loop of a thread, by its id."""
    longest, run = Longest(), asyncio.Handle._run
    gc.disable()  # a collection scans all that the other tests of this process made

    def run_measured(handle: Any) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        begun = thread_time()
        run(handle)
        longest.note(thread_time() - begun, handle)

    asyncio.Handle._run = run_measured
    try:
        yield longest
    finally:
        asyncio.Handle._run = run
        gc.enable()
