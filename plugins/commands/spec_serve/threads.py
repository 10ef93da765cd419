"""Threads for work that is in proportion to a request: long work waits for other long work, short work for none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from spec_kernels.machine import trim

from spec_serve.errors import ApiError

Result = TypeVar("Result")
SHORT = 1 << 11
"""Characters or tokens of work that is done in the event loop: in a millisecond, about as long as two threads need to
hand it over and back while others run."""
LONG = 1 << 16
"""Characters or tokens of long work."""
LONG_MAX = 2
"""Long work that is done at once: a text of megabytes takes a hundred times its size while it is tokenized."""
WAITING_MAX = 32
"""Long work, or grammars, that wait; each holds a body of up to megabytes."""
COMPILING_MAX = 4
"""Grammars that are compiled at once."""


def _run_and_trim(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run long work, then return its freed memory to the system, since each thread's allocator would keep it."""
    try:
        return work(*arguments)
    finally:
        trim()


class Threads:
    """The threads of one event loop."""

    def __init__(self) -> None:
        self._limiters: dict[int, CapacityLimiter] = {}

    async def run(self, size: int, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do work of this size, in a thread if it is not short. Raises ApiError where too much waits already."""
        if size <= SHORT:
            return work(*arguments)
        if size <= LONG:
            return await to_thread.run_sync(partial(work, *arguments))
        return await to_thread.run_sync(partial(_run_and_trim, work, *arguments), limiter=self._limiter(LONG_MAX))

    async def compile(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Compile a grammar in a thread. Raises ApiError where too many wait already."""
        return await to_thread.run_sync(partial(_run_and_trim, work, *arguments), limiter=self._limiter(COMPILING_MAX))

    def _limiter(self, count: int) -> CapacityLimiter:
        if count not in self._limiters:  # made inside of the loop
            self._limiters[count] = CapacityLimiter(count)
        limiter = self._limiters[count]
        if limiter.statistics().tasks_waiting >= WAITING_MAX:
            reason = f"{WAITING_MAX} long texts or grammars wait to be read; try again later"
            raise ApiError(503, reason, code="unavailable", headers={"Retry-After": "5"})
        return limiter
