"""Other faults of plugins than exceptions and bad answers: the error names the plugin, the text stays plain."""

from __future__ import annotations

import gc
import weakref

import pytest

from spec_core import (
    Compat,
    Draft,
    DraftPlan,
    Limit,
    Needs,
    Refusal,
    Refused,
    Request,
    Run,
    SpecError,
    StashKey,
    UsageError,
    hookimpl,
)
from spec_core.errors import PluginError
from spec_core.loop import guard
from spec_core.testing import ToyRollback, ToyTarget
from tests.core.toys import (
    DENSE,
    STRATEGIES,
    Fixed,
    dense,
    drafter,
    finish,
    finish_checked,
    ones,
    plain,
    requests,
    texts,
    toy_run,
)

# before anything runs


class Falls:
    """Raises in ``compat`` or in ``load``."""

    def __init__(self, where: str, error: Exception) -> None:
        self.where, self.error = where, error

    @hookimpl
    def compat(self):
        if self.where == "compat":
            raise self.error
        return Compat(load=self.load)

    def load(self, target):
        raise self.error


@pytest.mark.parametrize("where", ["compat", "load"])
def test_a_plugin_that_falls_before_the_run_is_named(where):
    """The message names plugin and hook; the cause is the original exception."""
    error = ZeroDivisionError("mine")

    with pytest.raises(PluginError, match=f"plugin 'falls' failed in {where}: ZeroDivisionError: mine") as raised:
        dense([Falls(where, error)])

    assert error is raised.value.__cause__
    assert "isolate" not in raised.value.hint, "there is no run yet to isolate it in"


WRONG_ANSWERS = {
    "owns-letters": (lambda: Compat(owns="recurrent"), "a set of names is needed, got the text 'recurrent'"),
    "drafts-letters": (lambda: Compat(drafts="sampled"), "a set of names is needed, got the text 'sampled'"),
    "judges-letters": (lambda: Compat(judges="sampled"), "a set of names is needed, got the text 'sampled'"),
    "drafts-of-no-kind": (
        lambda: Compat(drafts={"sample"}),
        "'sample' is not a kind of proposal; known, nearest first: sampled",
    ),
    "judges-of-no-kind": (lambda: Compat(judges={"rows"}), "'rows' is not a kind of proposal"),
    "needs-nothing": (lambda: Compat(needs=None), "needs"),
    "needs-a-trace-nobody-makes": (lambda: Compat(needs=Needs(trace="state")), "trace"),
    "refuses-in-words": (lambda: Compat(refusals=["too small"]), "refusals"),
    "noise-of-another-kind": (lambda: Compat(noise="white"), "noise"),
    "lossy-without-a-reason": (lambda: Compat(lossy=True), "lossy"),
    "loads-a-file": (lambda: Compat(load="head.gguf"), "load"),
    "forwards-a-number": (lambda: Compat(forwards=3), "forwards"),
}


@pytest.mark.parametrize("wrong", WRONG_ANSWERS)
def test_an_answer_that_means_nothing_is_its_plugins_error(wrong):
    """The mistake is reported at once; later it would be a wrong text, or an error of another plugin."""
    answer, reason = WRONG_ANSWERS[wrong]

    class Answers:
        @hookimpl
        def compat(self):
            return answer()

    with pytest.raises(PluginError, match=f"'answers' failed in compat: (Type|Value|NotCallable)Error.*{reason}"):
        dense([Answers()])


@pytest.mark.parametrize("where", ["compat", "load"])
def test_a_refusal_of_its_own_words_stays_as_it_is(where):
    """An error with a hint was written for the user: a damaged file, a missing tensor."""
    error = SpecError("head.gguf ends in the middle of a tensor", hint="download it again")

    with pytest.raises(SpecError) as raised:
        dense([Falls(where, error)])

    assert error is raised.value


def test_nothing_is_loaded_when_anybody_refuses():
    """Not for the other plugins either."""

    class Asks:
        @hookimpl
        def compat(self):
            return Compat(refusals=[Refusal("too small", "take a larger one")])

    with pytest.raises(Refused):
        dense([Falls("load", AssertionError("loaded")), Asks()])


def test_a_property_is_not_read_in_search_of_hooks():
    """It may need weights that are not loaded yet."""

    class Lazy:
        @property
        def head(self):
            raise RuntimeError("not loaded")

        @hookimpl
        def draft(self, step):
            for seq, _ in step.undrafted:
                step.propose(seq, Draft([1]))

    assert dense([Lazy()]).generate([1, 2], max_tokens=4).result.stats["drafted"] > 0


def generator(self, step):
    yield


def never(self, step):
    pass


async def waits(self, step):
    pass


async def waits_and_yields(self, step):
    yield


@pytest.mark.parametrize(
    ("body", "mark", "message"),
    [
        (generator, {}, "yields but is not a wrapper"),
        (generator, {"trylast": True}, "yields but is not a wrapper"),
        (never, {"wrapper": True}, "never yields"),
        (waits, {}, "async"),
        (waits_and_yields, {"wrapper": True}, "async"),
    ],
    ids=["generator", "generator-trylast", "wrapper-without-yield", "coroutine", "async-wrapper"],
)
def test_a_body_that_would_not_run_is_refused(body, mark, message):
    """Calling it would have no effect and give no error."""
    plugin = type("Lazy", (), {"accept": hookimpl(**mark)(body)})()

    with pytest.raises(UsageError, match=message) as error:
        dense([("lazy", plugin)])

    assert error.value.hint


# while it runs


def check_isolated(plugin, strategy="snapshot", **more) -> Run:
    """Checks that all texts are plain with ``plugin`` and a drafter of trees; returns the finished run."""
    run = toy_run([plugin, drafter("trees", texts(requests()))], strategy, on_error="isolate", **more)
    seqs = [run.submit(r) for r in requests()]
    finish_checked(run)
    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    return run


def test_an_error_whose_message_fails_is_an_error_like_any_other():
    """The error message of a broken plugin may itself raise."""

    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def make(step, seq, budget):
        raise Unprintable

    run = check_isolated(("mute", Fixed(make)))

    assert "Unprintable: (its message cannot be printed)" in run.stats.switched_off["mute"]


@pytest.mark.parametrize("hook", ["draft", "accept", "rollback", "process"])
def test_a_wrapper_that_yields_twice_is_switched_off(hook):
    """A wrapper that yields twice is an error; the results of the other plugins are not lost."""

    def twice(self, argument):
        yield
        yield

    name = "rows" if hook == "process" else "step"
    scope = {}
    exec(f"def wraps(self, {name}): return (yield from twice(self, {name}))", {"twice": twice}, scope)
    run = check_isolated(("twice", type("Twice", (), {hook: hookimpl(wrapper=True)(scope["wraps"])})()))

    why = run.stats.switched_off["twice"]
    assert f"'twice' failed in {hook}: RuntimeError: a wrapper must yield exactly once" in why


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_an_owner_rewinds(strategy):
    """A rewind by a plugin that does not own the state is an error: the text would be wrong."""

    class Meddles:
        @hookimpl
        def rollback(self, step):
            for seq in step.verdicts:
                if seq.output_position > 3:
                    step.rewind(seq, 1)

    run = check_isolated(Meddles(), strategy)

    assert "only an owner of target state" in run.stats.switched_off["meddles"]


@pytest.mark.parametrize("limit", [1.5, "2", -1, float("nan")], ids=str)
def test_a_limit_that_is_no_number_is_blamed_on_who_set_it(limit):
    """The error is not attributed to the method that is offered the budget afterwards."""

    class Limits:
        @hookimpl(tryfirst=True)
        def draft(self, step):
            step.plan(DraftPlan(dict.fromkeys(step.methods, Limit(limit))))

    run = check_isolated(Limits())

    assert {"limits"} == set(run.stats.switched_off)
    assert run.stats.report()["drafted"] > 0


@pytest.mark.parametrize("stranger", [None, "a", object()], ids=["none", "text", "object"])
def test_asking_for_a_sequence_that_is_none_is_the_plugins_error(stranger):
    """Whatever is asked for, the step knows its sequences only, and the error is named after the real one."""

    def make(step, seq, budget):
        step.part(stranger)

    run = check_isolated(("lost", Fixed(make)))

    assert "'lost' failed in draft on sequence" in run.stats.switched_off["lost"]


def test_a_sequence_that_finished_is_not_drafted_for():
    """A plugin that uses a sequence of an earlier step gets an error that says so."""
    kept = []

    def make(step, seq, budget):
        kept.append(seq)
        if kept[0].finish:
            step.propose(kept[0], Draft([1]))

    run = check_isolated(("clings", Fixed(make)), max_sequences=1)

    assert "KeyError" in run.stats.switched_off["clings"]


def test_time_is_counted_where_it_is_spent(monkeypatch):
    """A slow plugin only slows the run: its seconds are counted under its name, hook by hook."""
    now = [0.0]
    monkeypatch.setattr(guard, "perf_counter", lambda: now[0])

    class Slow:
        @hookimpl(tryfirst=True)
        def draft(self, step):
            now[0] += 2.0

        @hookimpl
        def process(self, rows):
            now[0] += 0.5

    run = check_isolated(Slow())
    seconds = run.stats.report()["seconds"]
    processed = run.stats.report()["forwards"]["target"]

    assert processed * 0.5 == seconds["process.slow"]
    assert seconds["draft.slow"] % 2 == 0 < seconds["draft.slow"] <= processed * 2
    assert seconds["draft.random-trees"] == 0


# memory


class Hoards:
    """Keeps everything it receives for ever."""

    def __init__(self) -> None:
        self.hoard = []

    @hookimpl
    def accept(self, step):
        self.hoard += [step, step.batch, step.output, *(step.logits(seq) for seq in step.undecided)]

    @hookimpl
    def process(self, rows):
        self.hoard += [rows, *rows.by_sequence(), *(dict(span.hidden) for _, span in rows.by_sequence())]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_keeping_everything_changes_nothing(strategy):
    """A plugin that keeps views changes no text and no state."""
    hoards = Hoards()
    check_isolated(hoards, strategy)

    assert len(hoards.hoard) > 50


class Notes:
    """Keeps something about each sequence in its stash."""

    class Something:
        pass

    def __init__(self) -> None:
        self.key = StashKey()
        self.made = []

    @hookimpl
    def process(self, rows):
        for seq, _ in rows.by_sequence():
            if self.key not in seq.stash:
                seq.stash[self.key] = something = self.Something()
                self.made.append(weakref.ref(something))


def test_a_stash_goes_away_with_its_slot():
    """Data about a text are dropped when its slot is reused, without any cleanup by the plugin."""
    notes = Notes()
    run = Run(ToyTarget(**DENSE), [notes], max_sequences=1)
    for token in range(4):
        run.generate([token, token], max_tokens=3).result
    gc.collect()

    assert [reference() is None for reference in notes.made] == [True, True, True, False]


def test_a_run_keeps_nothing_of_a_sequence_that_was_taken():
    """A server's run lives for months: no table of finished requests grows."""
    run = toy_run([ones(), ("faulty", Fixed(lambda step, seq, budget: Draft([99]) if seq.name == "3" else None))])
    run.settings = type(run.settings)(on_error="isolate")
    seen = []
    for i in range(8):
        seq = run.submit(Request([i, 1], max_tokens=4, name=str(i)))
        seen.append(weakref.ref(seq))
        if i == 5:
            run.cancel(seq)
        finish(run)
        run.take(seq)
        del seq
    gc.collect()

    assert not [ref() for ref in seen if ref() is not None]


def test_an_owner_is_not_switched_off_by_the_faults_of_others():
    """Its rollback continues although all other plugins are switched off."""
    faulty = [(f"bad-{i}", Fixed(lambda step, seq, budget: Draft([99]))) for i in range(3)]
    run = Run(ToyTarget(), faulty, rollback=ToyRollback(), on_error="isolate")
    seqs = [run.submit(r) for r in requests()]
    finish_checked(run)

    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert {"bad-0", "bad-1", "bad-2"} == set(run.stats.switched_off)
    assert not run.drafters
