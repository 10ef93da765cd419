"""One text on its way: what the engine's thread tells the event loop about it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeAlias

import attrs

from spec_core import Emitted, Request, Result, Sequence
from spec_serve.errors import api_error_of
from spec_serve.request_info import REQUEST_INFO, RequestInfo


@attrs.frozen
class Drafted:
    """A draft that was verified. sources: the method of every token. accepted: indices of its kept path."""

    ids: tuple[int, ...]
    sources: list[str]
    accepted: tuple[int, ...]


@attrs.frozen(eq=False)
class Accepted:
    """The request was checked and waits or runs."""


@attrs.frozen(eq=False)
class Prompted:
    """Progress of a prompt's evaluation. processed: tokens, with cached ones. seconds: since its first forward."""

    processed: int
    cache: int
    total: int
    seconds: float


@attrs.frozen(eq=False)
class Progress:
    """Tokens of one step, and the draft that was verified in it where the request asked for it."""

    events: list[Emitted]
    drafted: Drafted | None = None


@attrs.frozen(eq=False)
class Done:
    """The text is finished."""

    result: Result


@attrs.frozen(eq=False)
class Failed:
    """The text ended with an error, or was refused."""

    error: Exception


Message: TypeAlias = Accepted | Prompted | Progress | Done | Failed


@attrs.define(eq=False)
class EventQueue:
    """Messages of several jobs, from any thread to the event loop that made it."""

    loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop)
    queue: asyncio.Queue[tuple[Job, Message]] = attrs.field(factory=asyncio.Queue)

    def put(self, job: Job, message: Message) -> None:
        with suppress(RuntimeError):  # the loop is closed: the reader is gone
            self.loop.call_soon_threadsafe(self.queue.put_nowait, (job, message))


@attrs.define(eq=False)
class Job:
    """A text that was asked for. Written by the engine's thread, read by the event loop."""

    request: Request
    queue: EventQueue
    index: int = 0
    """Its place in the answer."""
    prompt: int = 0
    """Number of the prompt of the request that it continues."""
    trace: bool = False
    """Whether drafts are reported."""
    streamed: bool = True
    """Whether the event loop gets every step when it is made; otherwise all are in ``steps`` at the end."""
    prompted: bool = False
    """Whether the event loop also gets how much of the prompt is evaluated."""
    deadline: float | None = None
    """Time on the clock of ``perf_counter``, None is none."""
    number: int = 0
    """Number of the job, unique in the engine."""
    asked: float = 0.0
    """Time of its arrival on that clock; 0 is not yet, here and for the times below."""
    begun: float = 0.0
    """Time of its first forward."""
    first: float = 0.0
    """Time of its first token."""
    last: float = 0.0
    """Time of its end."""
    slot: int = -1
    """Number of its slot, -1 while it waits."""
    seq: Sequence | None = None
    drafted: Drafted | None = None
    expired: bool = False
    steps: list[Progress] = attrs.field(factory=list)
    info: RequestInfo = attrs.field(factory=REQUEST_INFO.get)
    """Facts of the HTTP request."""

    proposed: Counter[str] = attrs.field(factory=Counter)
    """Drafted tokens by method."""
    kept: Counter[str] = attrs.field(factory=Counter)
    """Accepted tokens by method."""

    def tell(self, message: Message) -> None:
        self.queue.put(self, message)


async def job_messages(queue: EventQueue, count: int) -> AsyncIterator[tuple[Job, Message]]:
    """Messages of ``count`` jobs until all of them have ended."""
    while count:
        job, message = await queue.queue.get()
        count -= isinstance(message, (Done, Failed))
        yield job, message


async def wait_until_accepted(queue: EventQueue, jobs: list[Job]) -> None:
    """Wait until the engine has accepted all of them; raises the error with which it refused one."""
    for _ in jobs:
        _, message = await queue.queue.get()
        if isinstance(message, Failed):
            raise api_error_of(message.error) from message.error
        assert isinstance(message, Accepted)
