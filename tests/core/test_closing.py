"""A run that ends releases its memory in the target: after close, exit from ``with``, or garbage collection."""

from __future__ import annotations

import gc
import weakref
from threading import Event, Lock, Thread

import attrs
import pytest
from toys import DENSE, Fixed, drafter, plain, requests, texts

from spec_core import Compat, Draft, PluginError, Request, Run, StashKey, UsageError, hookimpl
from spec_core.testing import ToyRollback, ToyTarget
from spec_core.toolkit import open_sequence

MANY = requests(6, 12)


class Counts(ToyTarget):
    """Records which slots are open; ``open`` and ``close`` take the same lock."""

    def __init__(self, **more) -> None:
        super().__init__(**more)
        self.opened, self.lock, self.collects = 0, Lock(), False

    def open(self, seq, want):
        with self.lock:
            self.opened += seq.slot.state is None
            if self.collects:
                gc.collect()
            return super().open(seq, want)

    def close(self, seq):
        assert self.lock.acquire(timeout=10), "closed by the thread that is opening"
        self.opened -= 1
        self.lock.release()
        super().close(seq)


class Remembers:
    """Keeps something large with every slot."""

    def __init__(self) -> None:
        self.key, self.seen = StashKey(), []

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def process(self, rows):
        for seq, _ in rows.by_sequence():
            kept = seq.stash.get(self.key)
            if kept is None:
                kept = seq.stash[self.key] = Large()
                self.seen.append(weakref.ref(kept))


class Large:
    """An object that supports weak references."""


def start(target: ToyTarget, **settings) -> Run:
    """Two sequences run, the others wait."""
    run = Run(target, [drafter("chains", texts(MANY))], rollback=ToyRollback("replay"), max_sequences=2, **settings)
    for request in MANY[:4]:
        run.submit(request)
    run.step()
    return run


def test_closing_gives_back_every_slot_and_ends_every_text():
    target = Counts()
    run = start(target)
    seqs = [*run.running, *run.waiting]
    first = run.generate(MANY[4])
    assert target.opened == 2

    run.close()
    run.close()

    assert target.opened == 0 and not run.busy and run.step() == []
    assert {run.take(seq).finish_reason for seq in seqs} == {"cancelled"}
    assert first.result.finish_reason == "cancelled" and first.result.tokens == []


def test_a_closed_run_takes_no_more_requests():
    with Run(ToyTarget(**DENSE)) as run:
        whole = run.generate(MANY[0]).result

    for ask in (run.submit, run.generate, lambda r: run.generate([r, r])):
        with pytest.raises(UsageError, match="the run is closed"):
            ask(MANY[0])
    with pytest.raises(UsageError, match="the run is closed"):
        run.submit(MANY[0], max_tokens=0)
    assert run.closed and run.stats.report()["requests"] == 1
    assert whole.tokens == plain(MANY[0], **DENSE).tokens


def test_a_run_is_closed_when_its_block_raises():
    target = Counts(**DENSE)
    with pytest.raises(ZeroDivisionError), Run(target) as run:
        next(run.generate(MANY[0]))
        1 / 0

    assert run.closed and target.opened == 0


@attrs.define(eq=False)
class Saves:
    """Notes when it was called; ``fails`` at the end."""

    log: list[str]
    fails: bool = False

    @hookimpl
    def compat(self):
        return Compat(close=self.save)

    @hookimpl
    def draft(self, step):
        if self.fails and self.log == ["broken"]:
            raise RuntimeError("no ideas")

    def save(self):
        self.log.append("saved")
        if self.fails:
            raise OSError("disk full")


def test_plugins_are_told_once_that_their_run_is_closed():
    """Also those after one that fails, and those whose block raised; not those of a run that is only dropped."""
    logs = [[], [], []]
    run = Run(ToyTarget(**DENSE), [("first", Saves(logs[0], fails=True)), ("second", Saves(logs[1]))])
    run.generate(MANY[0]).result
    assert logs == [[], [], []]
    with pytest.raises(PluginError, match="plugin 'first' failed in close: OSError: disk full"):
        run.close()
    run.close()
    with pytest.raises(ZeroDivisionError), Run(ToyTarget(**DENSE), [Saves(logs[2])]):
        1 / 0
    Run(ToyTarget(**DENSE), [Saves(logs[2])]).generate(MANY[0]).result

    assert logs == [["saved"], ["saved"], ["saved"]]


def test_a_plugin_that_was_switched_off_is_not_told():
    log = ["broken"]
    with Run(ToyTarget(**DENSE), [("first", Saves(log, fails=True))], on_error="isolate") as run:
        run.generate(MANY[0]).result

    assert "first" in run.stats.switched_off and log == ["broken"]


@pytest.mark.parametrize("steps", [3, 30], ids=["running", "finished"])
def test_a_dropped_run_gives_its_memory_back_at_once(steps):
    """Without the garbage collector, including data that plugins keep with a slot."""
    target, plugin = Counts(**DENSE), Remembers()
    gc.collect()
    gc.disable()
    try:
        run = Run(target, [plugin])
        seq = run.submit(MANY[0])
        for _ in range(steps):
            run.step()
        gone = weakref.ref(run)
        del run
        assert gone() is None and target.opened == 0
        assert seq.slot.state is None
        assert [kept() for kept in plugin.seen] == [None]
    finally:
        gc.enable()


def test_a_run_that_failed_gives_its_memory_back():
    """Its error refers to its frames, and they to the run: the garbage collector frees it."""
    target = Counts(**DENSE)
    run = Run(target, [Fixed(lambda step, seq, budget: Draft([99]))])
    seq = run.submit(MANY[0])
    with pytest.raises(PluginError):
        list(run)
    gone = weakref.ref(run)
    del run, seq
    gc.collect()

    assert gone() is None and target.opened == 0


def test_a_run_lives_as_long_as_an_iterator_of_it():
    target = Counts(**DENSE)
    generation = Run(target).generate(MANY[0])
    gc.collect()

    assert generation.result.tokens == plain(MANY[0], **DENSE).tokens
    assert target.opened == 1
    del generation
    gc.collect()
    assert target.opened == 0


def test_a_run_collected_while_its_target_holds_a_lock_is_closed_afterwards():
    """The collector runs in ``open`` of another run, behind the lock that ``close`` takes."""
    target = Counts(**DENSE)
    lost = Run(target)
    lost.generate(MANY[0]).result
    lost.observe(lambda step, lost=lost: None)  # it holds itself
    other = Run(target)
    del lost
    target.collects = True

    assert other.generate(MANY[1]).result.tokens == plain(MANY[1], **DENSE).tokens
    assert target.opened == 1


def test_a_target_that_cannot_close_a_slot_is_asked_for_the_others():
    """``close`` raises its error; of a run that was dropped it is a warning."""
    target, asked = ToyTarget(), []

    def close(seq):
        asked.append(seq)
        raise RuntimeError("no such page")

    target.close = close
    run = start(target)
    with pytest.raises(RuntimeError, match="no such page"):
        run.close()

    assert len(asked) == 2 and run.closed


def test_a_warning_names_the_target_that_cannot_close(caplog):
    target = ToyTarget(**DENSE)
    target.close = lambda seq: 1 / 0
    run = Run(target)
    run.generate(MANY[0]).result
    del run
    gc.collect()

    assert "toy-0 could not close a slot" in caplog.text


def test_closing_within_a_step_is_refused():
    run = Run(ToyTarget(**DENSE), [("closes", Fixed(lambda *_: run.close()))])

    with pytest.raises(PluginError, match="close was called from within a step"):
        list(run.generate(MANY[0]))


def test_a_run_is_closed_between_two_steps_of_another_thread():
    """A further step does nothing; results so far can be read; a closed slot is not used again."""
    target = Counts(**DENSE)
    for _ in range(5):
        run, begun, events = Run(target), Event(), []

        def read(run=run, begun=begun, events=events):
            generation = run.generate([1, 2], max_tokens=400)
            for event in generation:
                begun.set()
                events.append(event.token)
            events.append(generation.result.finish_reason)

        thread = Thread(target=read)
        thread.start()
        begun.wait()
        run.close()
        thread.join(20)

        assert not thread.is_alive()
        assert (
            events[-1] in ("cancelled", "length")
            and events[:-1] == plain(Request([1, 2], max_tokens=400), **DENSE).tokens[: len(events) - 1]
        )
        assert target.opened == 0


def test_a_sequence_of_a_method_is_closed_when_it_is_dropped():
    """As with a draft model, whose run is in the stash of a slot."""
    target = Counts(**DENSE)
    seq = open_sequence(target, close_when_dropped=True)
    assert target.opened == 1

    del seq
    gc.collect()
    assert target.opened == 0
