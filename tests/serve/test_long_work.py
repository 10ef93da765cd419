"""Long work of requests is done a few at a time, and short work does not wait for it."""

from __future__ import annotations

import asyncio
from threading import Event, Lock

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from fastapi import FastAPI
from spec_serve.errors import ApiError
from spec_serve.shape import CheckedRoute
from spec_serve.threads import COMPILING_MAX, LONG, LONG_MAX, WAITING_MAX, Threads


class Work:
    """Waits until it may end, and counts how often it runs at once."""

    def __init__(self):
        self.end, self.lock = Event(), Lock()
        self.running = self.most = 0

    def __call__(self):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.end.wait(10)
        with self.lock:
            self.running -= 1
        return self.most


def test_long_work_is_bounded_and_short_work_goes_past_it():
    async def main():
        threads, work = Threads(), Work()
        long = [asyncio.ensure_future(threads.run(LONG + 1, work)) for _ in range(8)]
        while work.running < LONG_MAX:
            await asyncio.sleep(0.001)
        short = await asyncio.wait_for(threads.run(LONG, lambda: "done"), 5)
        work.end.set()
        await asyncio.gather(*long)
        return short, work.most

    assert asyncio.run(main()) == ("done", LONG_MAX)


def test_grammars_are_compiled_a_few_at_a_time():
    async def main():
        threads, work = Threads(), Work()
        compiling = [asyncio.ensure_future(threads.compile(work)) for _ in range(12)]
        while work.running < COMPILING_MAX:
            await asyncio.sleep(0.001)
        work.end.set()
        await asyncio.gather(*compiling)
        return work.most

    assert asyncio.run(main()) == COMPILING_MAX


def test_work_that_would_wait_behind_too_much_is_refused():
    async def main():
        threads, work = Threads(), Work()
        long = [asyncio.ensure_future(threads.run(LONG + 1, work)) for _ in range(LONG_MAX + WAITING_MAX)]
        await asyncio.sleep(0.05)
        with pytest.raises(ApiError, match="wait to be read; try again later") as error:
            await threads.run(LONG + 1, work)
        short = await threads.run(1, lambda: "done")
        work.end.set()
        await asyncio.gather(*long)
        return error.value.status, short, await threads.run(LONG + 1, lambda: "later")

    assert asyncio.run(main()) == (503, "done", "later")


def test_a_handler_ends_when_its_client_leaves():
    """What waits for a thread is dropped, with the body that it holds."""

    async def main():
        app, states = FastAPI(), []
        app.router.route_class = CheckedRoute

        @app.post("/wait")
        async def wait(body: dict[str, int]):
            states.append("begun")
            try:
                await asyncio.Event().wait()
            finally:
                states.append("ended")

        messages = [{"type": "http.request", "body": b'{"a": 1}', "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            while not states:
                await asyncio.sleep(0.001)
            return {"type": "http.disconnect"}

        async def send(message):
            pass

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/wait", "headers": headers, "query_string": b""}
        await asyncio.wait_for(app(scope, receive, send), 10)
        return states

    assert asyncio.run(main()) == ["begun", "ended"]


def test_memory_of_long_work_returns_to_the_system(monkeypatch):
    """The allocator of every thread would keep it: 160 MiB for each text of megabytes that is tokenized."""
    returned = []
    monkeypatch.setattr("spec_serve.threads.trim_memory", lambda: returned.append(True))

    async def main():
        threads = Threads()
        await threads.run(LONG, lambda: "short")
        with pytest.raises(ValueError, match="long"):
            await threads.run(LONG + 1, lambda: int("long"))

    asyncio.run(main())
    assert returned == [True]
