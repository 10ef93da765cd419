"""A fault affects its plugin or sequence only: all other texts are unchanged, and the run continues."""

from __future__ import annotations

import pytest
from toys import Breaks, Fixed, drafter, finish, finish_checked, ones, plain, requests, texts, toy_run

from spec_core import Compat, Draft, Request, Run, UsageError, hookimpl
from spec_core.errors import PluginError
from spec_core.testing import ToyRollback, ToyTarget

HOOKS = ("draft", "accept", "rollback", "process")


class Faulty:
    """Raises in one hook, from its n-th call on."""

    def __init__(self, hook: str, after: int = 3, error=None, owns=(), **compat) -> None:
        self.hook, self.after, self.error = hook, after, error or ValueError("broken")
        self.answer = Compat(owns=owns, **{"drafts": (), **compat})
        self.calls = dict.fromkeys(HOOKS, 0)

    def turn(self, hook: str) -> None:
        self.calls[hook] += 1
        if hook == self.hook and self.calls[hook] > self.after:
            raise self.error

    @hookimpl
    def compat(self):
        return self.answer

    @hookimpl(tryfirst=True)
    def draft(self, step):
        self.turn("draft")

    @hookimpl
    def accept(self, step):
        self.turn("accept")

    @hookimpl
    def rollback(self, step):
        self.turn("rollback")

    @hookimpl
    def process(self, rows):
        self.turn("process")


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "between", "last"])
@pytest.mark.parametrize("hook", HOOKS)
def test_isolate_switches_a_failing_plugin_off(hook, place):
    """Its fault is counted; all texts are plain, all states correct, and other plugins keep learning and drafting."""
    faulty = Faulty(hook)
    methods = [drafter("trees", texts(requests())), ("owner", ToyRollback("replay"))]
    methods.insert(place, ("faulty", faulty))
    run = Run(ToyTarget(), methods, on_error="isolate", prefill_chunk=2, draft_max=3)
    seqs = [run.submit(r) for r in requests()]

    finish_checked(run)

    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert f"failed in {hook}" in run.stats.report()["switched_off"]["faulty"]
    assert faulty.calls[hook] == 4, "a plugin that was switched off is not called again"
    assert run.stats.report()["drafted"] > 0


def test_a_request_for_a_switched_off_method_is_told_why_it_is_not_there():
    """The message for a plugin that was switched off says so, and not that the name is unknown."""
    run = toy_run([("bad", Fixed(lambda step, seq, budget: Draft([99]))), ("good", ones())], on_error="isolate")
    run.submit([1, 2], max_tokens=4)
    finish(run)

    with pytest.raises(UsageError, match="names bad, switched off in this run: plugin 'bad' failed in draft") as error:
        run.submit([1, 2], max_tokens=4, methods=("good", "bad"))

    assert "start a new run" in error.value.hint
    assert (
        plain(Request([1, 2], max_tokens=4)).tokens
        == run.generate([1, 2], max_tokens=4, methods=("good",)).result.tokens
    )


@pytest.mark.parametrize("hook", HOOKS)
def test_raise_ends_the_step_and_closes_what_runs(hook):
    """The error names plugin and hook, and is the cause; the run itself can be used again."""
    error = KeyError("mine")
    run = toy_run([ones(), ("faulty", Faulty(hook, error=error, after=2))], on_error="raise")
    seqs = [run.submit(r) for r in requests(2)]

    with pytest.raises(PluginError, match=f"plugin 'faulty' failed in {hook}") as raised:
        finish(run)

    assert error is raised.value.__cause__
    assert not run.running
    assert [s.finish for s in seqs] == ["error", "error"]
    for seq in seqs:
        with pytest.raises(PluginError, match=f"plugin 'faulty' failed in {hook}"):
            run.take(seq)


@pytest.mark.parametrize("hook", HOOKS)
def test_after_a_raise_new_requests_are_served(hook):
    """Slots of closed sequences were dropped; nothing of the broken step is left."""
    faulty = Faulty(hook, after=2)
    run = toy_run([ones(), ("faulty", faulty)], max_sequences=1)
    run.submit(requests(1)[0])
    with pytest.raises(PluginError):
        finish(run)

    faulty.hook = ""
    for request in requests():
        seq = run.submit(request)
        finish_checked(run)
        assert plain(request).tokens == run.take(seq).tokens


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_one_plugins_exception_withholds_nothing_from_the_next(on_error):
    """All learners receive the rows of a step in which a plugin failed."""
    received = []

    class Learns:
        @hookimpl
        def process(self, rows):
            received.extend(rows.spans)

    run = Run(ToyTarget(), [("faulty", Faulty("process", after=0)), Learns()], on_error=on_error)
    run.submit([1, 2], max_tokens=2)
    if on_error == "raise":
        with pytest.raises(PluginError):
            run.step()
    else:
        run.step()

    assert len(received) == 1


@pytest.mark.parametrize("hook", ["draft", "rollback", "process"])
def test_an_owner_that_fails_ends_its_sequences_and_stays(hook):
    """A failed owner cannot be replaced: without it, accepted drafts would leave a wrong state."""

    class Owner(ToyRollback):
        fault = None

        @hookimpl
        def compat(self, target):
            return super().compat(target)

        def turn(self, hook):
            if self.fault == hook:
                self.fault = None
                raise RuntimeError("no memory")

        @hookimpl(tryfirst=True)
        def draft(self, step):
            self.turn("draft")

        @hookimpl
        def rollback(self, step):
            self.turn("rollback")
            super().rollback(step)

        @hookimpl
        def process(self, rows):
            self.turn("process")

    owner = Owner("snapshot")
    run = Run(ToyTarget(), [drafter("every-other-right", texts(requests(8)))], rollback=owner, on_error="isolate")
    first = [run.submit(r) for r in requests(8)[:3]]
    for _ in range(3):
        run.step()
    owner.fault = hook
    second = [run.submit(r) for r in requests(8)[3:]]
    run.step()
    finish_checked(run)

    assert {"error"} == {s.finish for s in first}
    with pytest.raises(PluginError, match=f"'owner' failed in {hook}"):
        run.take(first[0])
    for seq, request in zip(second, requests(8)[3:], strict=True):
        if seq.finish != "error":
            assert plain(request).tokens == run.take(seq).tokens
    later = [run.submit(r) for r in requests(8)]
    finish_checked(run)
    assert [plain(r).tokens for r in requests(8)] == [run.take(s).tokens for s in later]
    assert not run.stats.switched_off


def test_a_failed_sequence_counts_no_tokens_it_did_not_emit():
    """Text, tokens and statistics of a failed sequence agree."""

    class Fails(ToyRollback):
        @hookimpl
        def rollback(self, step):
            super().rollback(step)
            for seq in step.verdicts:
                if len(seq.tokens) > 6:
                    step.fail(seq, MemoryError("full"))

    request = Request([1, 2, 3], max_tokens=20, name="a")
    run = Run(ToyTarget(), [drafter("all-right", texts([request]))], rollback=Fails())
    seq = run.submit(request)
    events = []
    while run.busy:
        events += run.step()
    result = run.results[seq]

    assert [e.token for e in events] == result.tokens == plain(request).tokens[: len(result.tokens)]
    assert "".join(e.text for e in events) == result.text == run.target.tokenizer.decode(result.tokens)
    assert result.finish_reason == "error"
    assert result.stats["emitted"] == len(result.tokens) - 1
    with pytest.raises(MemoryError):
        run.take(seq)


def test_the_error_names_the_sequence():
    """The one the plugin was handed last."""
    run = toy_run(Fixed(lambda step, seq, budget: Draft([99]) if seq.name == "second" else None))
    run.submit([1, 2], max_tokens=5, name="first")
    run.submit([1, 2], max_tokens=5, name="second")

    with pytest.raises(PluginError, match="plugin 'fixed' failed in draft on sequence second: ValueError: token id 99"):
        finish(run)


# interruptions


@pytest.mark.parametrize("where", [*HOOKS, "forward"])
@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_an_interruption_closes_what_runs_and_leaves_the_run_usable(on_error, where):
    """After Ctrl-C in a hook or in the forward, running sequences end and waiting requests continue."""
    faulty = Faulty(where, error=KeyboardInterrupt(), after=2)
    target = Breaks(4, KeyboardInterrupt()) if where == "forward" else ToyTarget()
    run = Run(target, [ones(), ("faulty", faulty)], rollback=ToyRollback(), max_sequences=2, on_error=on_error)
    seqs = [run.submit(r) for r in requests(4)]

    with pytest.raises(KeyboardInterrupt):
        finish(run)
    faulty.hook = ""

    assert ([s.finish for s in seqs[:2]], run.running) == (["error", "error"], [])
    finish_checked(run)
    assert [plain(r).tokens for r in requests(4)[2:]] == [run.take(s).tokens for s in seqs[2:]]
    assert plain(requests()[0]).tokens == run.generate(requests()[0]).result.tokens


def test_an_iterator_of_a_closed_sequence_ends():
    """After an interruption the result has the text so far and the reason."""
    run = toy_run([ones(), ("faulty", Faulty("accept", error=KeyboardInterrupt(), after=3))])
    generation = run.generate([1, 2, 3], max_tokens=20)
    with pytest.raises(KeyboardInterrupt):
        list(generation)

    result = generation.result

    assert ("error", plain(Request([1, 2, 3], max_tokens=3)).tokens) == (result.finish_reason, result.tokens)


def test_an_iterator_that_somebody_elses_error_ended_raises_it():
    """Once from the iterator, after its events, and from ``result``; then it is at its end."""
    run = toy_run([ones(), ("faulty", Faulty("accept", after=3))])
    one, other = run.generate([1, 2, 3], max_tokens=20), run.generate([4, 5], max_tokens=20)
    with pytest.raises(PluginError):
        list(one)

    tokens = []
    with pytest.raises(PluginError, match="plugin 'faulty' failed in accept"):
        for event in other:
            tokens.append(event.token)

    assert plain(Request([4, 5], max_tokens=3)).tokens == tokens
    assert list(other) == []
    with pytest.raises(PluginError):
        other.result


@pytest.mark.parametrize("turn", ["before", "after"])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_wrapper_that_raises_is_isolated_too(hook, turn):
    """In a hook wrapper: the results of the other plugins are not lost."""

    def around(self, argument):
        if turn == "before":
            raise ValueError("broken")
        result = yield
        assert result is not None
        raise ValueError("broken")

    name = "rows" if hook == "process" else "step"
    scope = {}
    exec(f"def wraps(self, {name}): return (yield from around(self, {name}))", {"around": around}, scope)
    broken = type("Broken", (), {hook: hookimpl(wrapper=True)(scope["wraps"])})()
    run = toy_run([drafter("chains", texts(requests())), ("broken", broken)], on_error="isolate")
    seqs = [run.submit(r) for r in requests()]
    finish_checked(run)

    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert {"broken"} == set(run.stats.switched_off)
