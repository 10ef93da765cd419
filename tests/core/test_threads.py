"""A run used by several threads: each gets its own text, and calls take effect between two steps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest
from toys import DENSE, Fixed, dense, drafter, finish, ones, plain, requests, texts, toy_run

from spec_core import Draft, PluginError, Request, UsageError, hookimpl
from spec_core.loop.fair_lock import FairLock

MANY = requests(16, 12)


@pytest.mark.parametrize("kind", ["chains", "trees"])
def test_texts_of_threads_are_plain(kind):
    """Iterators of one run, read in threads of their own: each gets all of its events and no others."""
    run = toy_run(drafter(kind, texts(MANY)), max_sequences=3)

    def read(request: Request) -> list[int]:
        return [event.token for event in run.generate(request)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(read, MANY))

    assert [plain(r).tokens for r in MANY] == results
    assert not run.results and not run.busy


def test_requests_are_submitted_and_cancelled_while_another_thread_steps():
    """What is cancelled ends where it was, what is not is plain; nothing is lost."""
    run = dense([drafter("chains", {})], max_sequences=2)
    stop = Event()

    def steps() -> None:
        while run.busy or not stop.is_set():
            run.step()

    def serve(i: int):
        seq = run.submit(MANY[i])
        if i % 4 == 3:
            run.cancel(seq)
        return seq

    stepping = Thread(target=steps)
    stepping.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            seqs = list(pool.map(serve, range(len(MANY))))
    finally:
        stop.set()
        stepping.join()

    for i, seq in enumerate(seqs):
        result, whole = run.take(seq), plain(MANY[i], **DENSE).tokens
        assert result.finish_reason in ("length", "cancelled" if i % 4 == 3 else "length")
        assert whole[: len(result.tokens)] == result.tokens
        assert result.finish_reason == "cancelled" or whole == result.tokens


def test_who_waits_goes_first():
    """A thread that steps without pause does not starve the others."""
    lock, waits, order = FairLock(), Event(), []

    def other() -> None:
        waits.set()
        with lock:
            order.append("other")

    thread = Thread(target=other)
    with lock:
        thread.start()
        waits.wait()
        while not lock._next.locked():
            pass
    with lock:
        order.append("again")
    thread.join()

    assert order == ["other", "again"]


def test_a_hook_may_submit_and_cancel_but_not_step():
    """A step within a step raises an error."""
    seqs = []

    class Asks:
        @hookimpl
        def process(self, rows):
            if not seqs:
                seqs.append(run.submit([5], max_tokens=3))
                run.cancel(first)
            elif len(seqs) == 1:
                seqs.append(None)
                run.step()

    run = dense([Asks()])
    first = run.submit([1, 2], max_tokens=9)
    run.step()

    assert run.take(first).finish_reason == "cancelled"
    with pytest.raises(PluginError, match="step was called from within a step") as raised:
        finish(run)
    assert isinstance(raised.value.__cause__, UsageError)


def test_a_fault_in_one_threads_step_reaches_every_iterator():
    """All iterators end with the error, whichever thread raised it; none waits for ever."""
    run = toy_run([Fixed(lambda step, seq, budget: Draft([99]) if len(seq.tokens) > 5 else None), ("ones", ones())])

    def read(request: Request) -> str:
        try:
            return str(list(run.generate(request)))
        except PluginError as error:
            return error.plugin

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(read, MANY[:4]))

    assert results == ["fixed"] * 4
