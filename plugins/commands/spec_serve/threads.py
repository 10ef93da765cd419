"""Threads for work that is in proportion to a request: long work waits for other long work, short work for none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from spec_kernels.machine import trim_memory

from spec_serve.errors import ApiError

Result = TypeVar("Result")
SHORT = 1 << 11
"""Characters or tokens of work that is done in the event loop: in a millisecond, about as long as two threads need to
hand it over and back while others run."""
LONG = 1 << 16
"""Characters or tokens of long work."""
LONG_MAX = 1
"""Long work that is done at once: a long text takes 170 times its size while it is tokenized."""
WAITING_MAX = 32
"""Long work, grammars, or prompts with pictures, that wait; each holds a body of up to megabytes."""
COMPILING_MAX = 2
"""Grammars that are compiled at once. One may take 190 MiB while it is compiled."""
WRITTEN_MAX = 1
"""Long answers that are written at once: their log-probabilities take many times the size of the text."""
PICTURED_MAX = 1
"""Prompts with pictures that are read at once: the memory plan counts one."""


def _run_and_trim(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run long work, then return its freed memory to the system, since each thread's allocator would keep it."""
    try:
        return work(*arguments)
    finally:
        trim_memory()


_WRITING: RunVar[CapacityLimiter] = RunVar("writing")


async def write_in_thread(size: int, work: Callable[..., Result], *arguments: Any) -> Result:
    """Write a part of an answer of this size, in a thread if it is not short. Is never refused: the text is there."""
    if size <= SHORT:
        return work(*arguments)
    if size <= LONG:
        return await to_thread.run_sync(partial(work, *arguments))
    limiter = _WRITING.get(None)
    if limiter is None:
        _WRITING.set(limiter := CapacityLimiter(WRITTEN_MAX))
    return await to_thread.run_sync(partial(_run_and_trim, work, *arguments), limiter=limiter)


class Threads:
    """The threads of one event loop."""

    def __init__(self) -> None:
        self._limiters: dict[str, CapacityLimiter] = {}

    async def run(self, size: int, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do work of this size, in a thread if it is not short. Raises ApiError where too much waits already."""
        if size <= SHORT:
            return work(*arguments)
        if size <= LONG:
            return await to_thread.run_sync(partial(work, *arguments))
        return await self._run_some("long", LONG_MAX, work, *arguments)

    async def compile(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Compile a grammar in a thread. Raises ApiError where too many wait already."""
        return await self._run_some("grammars", COMPILING_MAX, work, *arguments)

    async def read_pictures(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Read a prompt with pictures in a thread. Raises ApiError where too many wait already."""
        return await self._run_some("pictures", PICTURED_MAX, work, *arguments)

    async def _run_some(self, kind: str, count: int, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do work of a kind. count: how much of this kind is done at once."""
        if kind not in self._limiters:  # made inside of the loop
            self._limiters[kind] = CapacityLimiter(count)
        limiter = self._limiters[kind]
        if limiter.statistics().tasks_waiting >= WAITING_MAX:
            reason = f"{WAITING_MAX} long texts, grammars or prompts with pictures wait to be read; try again later"
            raise ApiError(503, reason, code="unavailable", headers={"Retry-After": "5"})
        return await to_thread.run_sync(partial(_run_and_trim, work, *arguments), limiter=limiter)
