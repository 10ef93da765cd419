"""Faults stay with whoever made them: the text of every other sequence is untouched, and the run goes on."""

from __future__ import annotations

import math

import attrs
import pytest
import torch
from toys import Fixed, drafter, finish, gated, ones, plain, sampled, texts, toy_run

from spec_core import Compat, Draft, Request, Run, Sampling, SpecError, UsageError, Verdict, hookimpl
from spec_core.errors import PluginError
from spec_core.testing import ToyRollback, ToyTarget

HOOKS = ("draft", "accept", "rollback", "process")
DENSE = {"recurrent": False}


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


def requests(count: int = 4, n: int = 14) -> list[Request]:
    return [Request([i, i + 1, 5][: 1 + i % 3], n=n, name=f"{i}", **sampled(i)) for i in range(count)]


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "between", "last"])
@pytest.mark.parametrize("hook", HOOKS)
def test_isolate_switches_a_failing_plugin_off(hook, place):
    """Its fault is in the statistics; every text is plain, every state fresh, others keep learning and drafting."""
    faulty = Faulty(hook)
    methods = [drafter("trees", texts(requests())), ("owner", ToyRollback("replay"))]
    methods.insert(place, ("faulty", faulty))
    run = Run(ToyTarget(), methods, on_error="isolate", chunk=2, draft_max=3)
    seqs = [run.submit(r) for r in requests()]

    gated(run)

    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert f"failed in {hook}" in run.stats.report()["switched_off"]["faulty"]
    assert faulty.calls[hook] == 4, "a plugin that was switched off is not called again"
    assert run.stats.report()["drafted"] > 0


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


@pytest.mark.parametrize("hook", HOOKS)
def test_after_a_raise_new_requests_are_served(hook):
    """Slots of closed sequences were dropped; nothing of the broken step is left."""
    faulty = Faulty(hook, after=2)
    run = toy_run([ones(), ("faulty", faulty)], slots=1)
    run.submit(requests(1)[0])
    with pytest.raises(PluginError):
        finish(run)

    faulty.hook = ""
    for request in requests():
        seq = run.submit(request)
        gated(run)
        assert plain(request).tokens == run.take(seq).tokens


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_one_plugins_exception_withholds_nothing_from_the_next(on_error):
    """Everybody hears of the rows of the step in which somebody failed."""
    told = []

    class Learns:
        @hookimpl
        def process(self, rows):
            told.extend(rows.spans)

    run = Run(ToyTarget(), [("faulty", Faulty("process", after=0)), Learns()], on_error=on_error)
    run.submit([1, 2], n=2)
    if on_error == "raise":
        with pytest.raises(PluginError):
            run.step()
    else:
        run.step()

    assert len(told) == 1


@pytest.mark.parametrize("hook", ["draft", "rollback", "process"])
def test_an_owner_that_fails_ends_its_sequences_and_stays(hook):
    """Nobody can stand in for an owner: without it, kept drafts would leave wrong state behind."""

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
    gated(run)

    assert {"error"} == {s.finish for s in first}
    with pytest.raises(PluginError, match=f"'owner' failed in {hook}"):
        run.take(first[0])
    for seq, request in zip(second, requests(8)[3:], strict=True):
        if seq.finish != "error":
            assert plain(request).tokens == run.take(seq).tokens
    later = [run.submit(r) for r in requests(8)]
    gated(run)
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

    request = Request([1, 2, 3], n=20, name="a")
    run = Run(ToyTarget(), [drafter("all-right", texts([request]))], rollback=Fails())
    seq = run.submit(request)
    events = []
    while run.busy:
        events += run.step()
    result = run.results[seq]

    assert [e.token for e in events] == result.tokens == plain(request).tokens[: len(result.tokens)]
    assert result.finish_reason == "error"
    assert result.stats["emitted"] == len(result.tokens) - 1
    with pytest.raises(MemoryError):
        run.take(seq)


def test_the_error_names_the_sequence():
    """The one the plugin was handed last."""
    run = toy_run(Fixed(lambda step, seq, budget: Draft([99]) if seq.name == "second" else None))
    run.submit([1, 2], n=5, name="first")
    run.submit([1, 2], n=5, name="second")

    with pytest.raises(PluginError, match="plugin 'fixed' failed in draft on sequence second: ValueError: token id 99"):
        finish(run)


# bad proposals

V = 48
EVEN = torch.full((2, V), 1 / V)


def probs(**cells) -> torch.Tensor:
    made = EVEN.clone()
    for cell, value in cells.items():
        made[0, int(cell[1:])] = value
    return made


BAD = {
    "token-behind-the-vocabulary": lambda: Draft([V]),
    "negative-token": lambda: Draft([1, -1]),
    "longer-than-the-budget": lambda: Draft([1] * 40),
    "empty": lambda: Draft([]),
    "empty-tensor": lambda: Draft(torch.empty(0, dtype=torch.int64)),
    "float-tensor": lambda: Draft(torch.tensor([1.0, 2.0])),
    "bool-tensor": lambda: Draft(torch.tensor([True, False])),
    "matrix": lambda: Draft(torch.ones(2, 2, dtype=torch.int64)),
    "scalar-tensor": lambda: Draft(torch.tensor(3)),
    "float-list": lambda: Draft([1.5]),
    "bool-list": lambda: Draft([True]),
    "text": lambda: Draft("ab"),
    "none-token": lambda: Draft([None]),
    "a-list-is-no-draft": lambda: [1, 2],
    "no-draft-at-all": lambda: 7,
    "parent-of-itself": lambda: Draft([1, 2], parents=[-1, 1]),
    "parent-behind": lambda: Draft([1, 2], parents=[1, -1]),
    "parent-below-the-root": lambda: Draft([1, 2], parents=[-2, 0]),
    "too-few-parents": lambda: Draft([1, 2], parents=[-1]),
    "too-many-parents": lambda: Draft([1], parents=[-1, 0]),
    "no-parents": lambda: Draft([1], parents=[]),
    "tree-too-deep": lambda: Draft([1] * 9, parents=list(range(-1, 8))),
    "tree-too-wide": lambda: Draft([1] * 30, parents=[-1] * 30),
    "float-parents": lambda: Draft([1, 2], parents=[-1, 0.0]),
    "probs-of-another-length": lambda: Draft([1], probs=EVEN),
    "probs-of-another-vocabulary": lambda: Draft([1, 2], probs=torch.full((2, 9), 1 / 9)),
    "probs-of-one-dimension": lambda: Draft([1], probs=EVEN[0]),
    "probs-of-integers": lambda: Draft([1, 2], probs=torch.ones(2, V, dtype=torch.int64)),
    "probs-that-do-not-add-up": lambda: Draft([1, 2], probs=probs(c5=0.5)),
    "negative-probs": lambda: Draft([1, 2], probs=probs(c5=-0.1, c6=0.1 + 2 / V)),
    "nan-probs": lambda: Draft([1, 2], probs=probs(c5=math.nan)),
    "infinite-probs": lambda: Draft([1, 2], probs=probs(c5=math.inf)),
    "impossible-token": lambda: Draft([1, 2], probs=probs(c1=0.0, c2=2 / V)),
    "rows-without-probs": lambda: Draft([1], law="rows"),
    "unknown-law": lambda: Draft([1], law="guessed"),
    "undeclared-law": lambda: Draft([1], law="unknown"),
    "confidence-of-another-length": lambda: Draft([1, 2], confidence=[0.5]),
    "confidence-above-one": lambda: Draft([1], confidence=[1.5]),
    "confidence-nan": lambda: Draft([1], confidence=[math.nan]),
}


class Proposes(Fixed):
    """May draft trees and sampled rows; one bad proposal for the sequence named ``bad``."""

    @hookimpl
    def compat(self):
        from spec_core import Needs

        return Compat(needs=Needs(trees=True), drafts={"deterministic", "rows"})


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_proposal_is_its_plugins_error(bad):
    """Named at the boundary; under isolate every text stays plain and earlier proposals of the step stand."""

    def make(step, seq, budget):
        return BAD[bad]() if seq.name == "1" and seq.t > 2 else Draft([1])

    settings = {"draft_max": 8, "nodes_max": 20}
    run = toy_run(("bad", Proposes(make)), **settings)
    run.submit(requests()[1])
    with pytest.raises(PluginError, match=r"'bad' failed in draft on sequence 1: (Type|Value)Error"):
        finish(run)

    run = toy_run([("bad", Proposes(make)), ("good", ones())], on_error="isolate", **settings)
    seqs = [run.submit(r) for r in requests()]
    gated(run)

    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert {"bad"} == set(run.stats.switched_off)
    assert "good" in run.stats.report()["methods"], "the rest of the hook ran"


def test_a_second_proposal_for_a_sequence_is_an_error():
    """The first stands."""

    class Twice:
        @hookimpl
        def draft(self, step):
            for seq, _ in step.undrafted:
                step.propose(seq, Draft([1]))
                step.propose(seq, Draft([2]))

    with pytest.raises(PluginError, match="was not offered"):
        list(toy_run(Twice()).generate([1, 2], n=5))


def test_a_tree_without_the_need_is_an_error():
    """Targets prepare for trees; a plugin that branches says so."""
    with pytest.raises(PluginError, match="no plugin declared"):
        list(toy_run(Fixed(lambda step, seq, budget: Draft([1], parents=[-1]))).generate([1, 2], n=5))


# bad verdicts

VERDICTS = {
    "token-behind-the-vocabulary": lambda: Verdict((), V),
    "negative-token": lambda: Verdict((), -1),
    "float-token": lambda: Verdict((), 1.7),
    "path-behind-the-draft": lambda: Verdict((0, 1, 2), 1),
    "path-with-a-hole": lambda: Verdict((1,), 1),
    "path-backwards": lambda: Verdict((1, 0), 1),
    "path-twice": lambda: Verdict((0, 0), 1),
    "negative-path": lambda: Verdict((-1,), 1),
    "float-path": lambda: Verdict((0.0,), 1),
    "no-verdict": lambda: (0, 1),
}


@pytest.mark.parametrize("bad", VERDICTS)
def test_a_bad_verdict_is_its_rules_error(bad):
    """Under isolate the core's own rule decides what the broken one did not."""

    class Rule:
        @hookimpl
        def compat(self):
            return Compat(drafts=())

        @hookimpl
        def accept(self, step):
            for seq in step.undecided:
                if seq.t > 2:
                    step.decide(seq, VERDICTS[bad]())

    run = Run(ToyTarget(**DENSE), [ones(2)], rule=("rule", Rule()), on_error="isolate")
    seqs = [run.submit(r) for r in requests()]
    gated(run)

    assert [plain(r, **DENSE).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert {"rule"} == set(run.stats.switched_off)


def test_a_fault_of_the_cores_rule_ends_only_the_sequences_it_left_undecided():
    """It cannot be switched off: nobody would decide any more."""

    class Forgets(ToyTarget):
        def forward(self, batch, needs):
            checked = super().forward(batch, needs)
            return attrs.evolve(checked, logits=checked.logits[:-1]) if self.forwards == 5 else checked

    run = Run(Forgets(), [], on_error="isolate")
    seqs = [run.submit(r) for r in requests()]
    finish(run)

    assert [s.finish for s in seqs] == ["length", "length", "length", "error"]
    assert [plain(r).tokens for r in requests()[:3]] == [run.take(s).tokens for s in seqs[:3]]
    assert not run.stats.switched_off
    assert plain(requests()[0]).tokens == run.generate(requests()[0]).result.tokens


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
@pytest.mark.parametrize("cut", [{"temperature": 0}, {"temperature": 1}, {"temperature": 1, "top_k": 3}], ids=str)
def test_logits_that_are_no_numbers_end_their_sequence(cut, on_error):
    """NaN must not become a token; only where a row of it was to decide, and nobody else is touched."""

    class Poisoned(ToyTarget):
        def forward(self, batch, needs):
            checked = super().forward(batch, needs)
            for part in batch.parts:
                if part.decides and part.seq.name == "1" and part.seq.t == 3:
                    checked.logits[part.at, 7] = math.nan
                elif part.decides and part.drafted == 2 and part.seq.t == 5:
                    checked.logits[part.at + 2] = math.nan  # behind a wrong draft: nobody reads it
            return checked

    asked = [Request([i, 2], n=9, name=f"{i}", sampling=Sampling(**cut)) for i in range(3)]
    wrong = drafter("none-right", texts(asked))
    wrong.length = 2
    run = Run(Poisoned(), [wrong], rollback=ToyRollback(), on_error=on_error)
    seqs = [run.submit(r) for r in asked]
    finish(run)

    assert [s.finish for s in seqs] == ["length", "error", "length"]
    assert plain(asked[1]).tokens[:3] == seqs[1].tokens[2:]
    with pytest.raises(SpecError, match="not numbers"):
        run.take(seqs[1])
    assert [plain(asked[i]).tokens for i in (0, 2)] == [run.take(seqs[i]).tokens for i in (0, 2)]


# the target


class Breaks(ToyTarget):
    """Raises in the n-th forward."""

    def __init__(self, at: int, error=None, **more) -> None:
        super().__init__(**more)
        self.at, self.error = at, error or RuntimeError("device lost")

    def forward(self, batch, needs):
        if self.forwards + 1 == self.at:
            self.forwards += 1
            for part in batch.parts:
                part.seq.slot.state.keys.append(None)
            raise self.error
        return super().forward(batch, needs)


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_forward_that_raises_fails_only_that_steps_sequences(at, on_error):
    """They drop their slots; waiting and later requests are served."""
    run = Run(Breaks(at), [ones()], rollback=ToyRollback(), slots=2, on_error=on_error)
    seqs = [run.submit(r) for r in requests(5)]

    gated(run)

    assert [s.finish for s in seqs[:2]] == ["error"] * 2
    for seq in seqs[:2]:
        with pytest.raises(RuntimeError, match="device lost"):
            run.take(seq)
    assert [plain(r).tokens for r in requests(5)[2:]] == [run.take(s).tokens for s in seqs[2:]]


def test_a_forward_that_raises_reaches_the_iterator():
    """Events that were emitted come first, then the error."""
    run = Run(Breaks(4))
    got = []
    with pytest.raises(RuntimeError, match="device lost"):
        for event in run.generate([1, 2, 3], n=9):
            got.append(event.token)

    assert plain(Request([1, 2, 3], n=3)).tokens == got


def test_a_target_without_memory_fails_the_request_it_has_none_for():
    """Others run on, and the next request is tried again."""

    class Small(ToyTarget):
        def open(self, seq, want):
            if seq.name == "1":
                raise MemoryError("no room for another slot")
            return super().open(seq, want)

    run = Run(Small(), slots=2)
    seqs = [run.submit(r) for r in requests(4)]
    finish(run)

    with pytest.raises(MemoryError):
        run.take(seqs.pop(1))
    others = [r for r in requests(4) if r.name != "1"]
    assert [plain(r).tokens for r in others] == [run.take(s).tokens for s in seqs]


def test_a_failed_sequence_leaves_no_slot_behind():
    """The memory of its slot is given back, not reused."""
    closed = []

    class Noting(Breaks):
        def close(self, seq):
            closed.append(seq.name)
            super().close(seq)

    run = Run(Noting(2, recurrent=False), slots=1)
    first = run.submit([1, 2, 3, 4, 5], n=4, name="first")
    finish(run)
    result = run.generate([1, 2, 3, 4, 5], n=4, name="second").result

    assert (closed, first.finish, result.reused) == (["first"], "error", 0)


# interruptions


@pytest.mark.parametrize("where", [*HOOKS, "forward"])
@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_an_interruption_closes_what_runs_and_leaves_the_run_usable(on_error, where):
    """Ctrl-C in a hook or in the forward: nothing half-done is continued, waiting requests are."""
    faulty = Faulty(where, error=KeyboardInterrupt(), after=2)
    target = Breaks(4, KeyboardInterrupt()) if where == "forward" else ToyTarget()
    run = Run(target, [ones(), ("faulty", faulty)], rollback=ToyRollback(), slots=2, on_error=on_error)
    seqs = [run.submit(r) for r in requests(4)]

    with pytest.raises(KeyboardInterrupt):
        finish(run)
    faulty.hook = ""

    assert ([s.finish for s in seqs[:2]], run.running) == (["error", "error"], [])
    gated(run)
    assert [plain(r).tokens for r in requests(4)[2:]] == [run.take(s).tokens for s in seqs[2:]]
    assert plain(requests()[0]).tokens == run.generate(requests()[0]).result.tokens


def test_an_iterator_of_a_closed_sequence_ends():
    """After an interruption it says how far the text got, and why it ended."""
    run = toy_run([ones(), ("faulty", Faulty("accept", error=KeyboardInterrupt(), after=3))])
    generation = run.generate([1, 2, 3], n=20)
    with pytest.raises(KeyboardInterrupt):
        list(generation)

    result = generation.result

    assert ("error", plain(Request([1, 2, 3], n=3)).tokens) == (result.finish_reason, result.tokens)


@pytest.mark.parametrize("turn", ["before", "after"])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_wrapper_that_raises_is_isolated_too(hook, turn):
    """Around the others' turns: theirs are not lost."""

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
    gated(run)

    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert {"broken"} == set(run.stats.switched_off)


# a user's mistake ends no run


@pytest.mark.parametrize(
    "request_, message",
    [
        (Request([48], n=3), "outside the vocabulary"),
        (Request([-1], n=3), "outside the vocabulary"),
        (Request([], n=3), "prompt is empty"),
        (Request([1], sampling=Sampling(logit_bias={48: 1.0})), "logit bias for token 48"),
        (Request([1], sampling=Sampling(logit_bias={-1: 1.0})), "logit bias for token -1"),
        (Request([1], sampling=Sampling(logit_bias={1: math.inf})), "logit bias inf"),
        (Request([1], sampling=Sampling(logit_bias={1: math.nan})), "logit bias nan"),
        (Request([1], draft_max=-1), "draft_max = -1"),
        (Request([1], embeds={1: torch.zeros(12)}), "position 1, the prompt has 1"),
        (Request([1], embeds={-1: torch.zeros(12)}), "position -1"),
        (Request([-1], embeds={0: torch.zeros(13)}), r"shape \[13\]"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_requests_are_checked_before_they_join(request_, message):
    """Refused at ``submit``, with a mend; whatever runs is not disturbed."""
    run = Run(ToyTarget())
    other = run.submit([1, 2], n=4)
    run.step()

    with pytest.raises(UsageError, match=message) as error:
        run.submit(request_)
    assert error.value.mend

    finish(run)
    assert plain(Request([1, 2], n=4)).tokens == run.take(other).tokens


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"top_k": -1},
        {"top_k": 2.5},
        {"repetition_penalty": 0.0},
        {"presence_penalty": math.inf},
        {"logprobs": -1},
        {"logprobs": 1.5},
    ],
    ids=str,
)
def test_sampling_settings_are_checked_where_they_are_made(setting):
    """Out of range or of another kind: refused with the name of the setting."""
    with pytest.raises(UsageError, match=next(iter(setting))):
        Sampling(**setting)


def test_a_cancelled_request_that_waits_leaves_at_once():
    """It does not wait for a slot."""
    run = Run(ToyTarget(), slots=1)
    first, _, third = (run.submit([i], n=6) for i in range(3))
    run.step()
    run.cancel(third)
    run.step()

    assert first.finish is None
    assert (run.results[third].finish_reason, run.results[third].tokens) == ("cancelled", [])
