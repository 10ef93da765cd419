"""The controller in a run: it obeys requests and settings, and no text depends on it."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_control.account import Report, Use
from spec_control.auto import Auto
from spec_methods.ngram import Ngram

from spec_core import Compat, DraftPlan, Limit, Request, Run, Sampling, hookimpl
from spec_core.testing import ControllerConformance, Oracle, QuickTarget, RandomTrees, ToyRollback, ToyTarget

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
SAMPLED = Sampling(temperature=0.9)


class TestAuto(ControllerConformance):
    def make(self):
        return Auto()


def toy():
    return ToyTarget(recurrent=False)


def plain(request):
    return Run(toy()).generate(attrs.evolve(request, methods=None)).result.tokens


def oracle(requests, right=lambda i, seq: True, length=6):
    return Oracle({r.name: [*r.prompt, *plain(r)] for r in requests}, right, length)


def finish(run, requests):
    seqs = [run.submit(r) for r in requests]
    for _ in run:
        pass
    return [run.take(seq) for seq in seqs]


@attrs.define(eq=False)
class Whims:
    """A controller whose plans are made by nothing but chance."""

    seed: int
    rng: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.rng = random.Random(self.seed)

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        rng = self.rng
        if rng.random() < 0.2:
            return
        apart = {part.seq.number: self._limits(step) for part in step.parts if rng.random() < 0.3}
        drop = rng.sample(step.methods, 1) if rng.random() < 0.05 else ()
        loss, plain_seconds = rng.choice([0.0, 1e-4, 1.0]), rng.choice([0.0, 1e-5])
        step.plan(DraftPlan(self._limits(step), apart, rng.randint(1, 6), loss, plain_seconds, drop))

    def _limits(self, step):
        rng = self.rng
        draw = lambda: Limit(rng.choice([None, 0, 1, 2, 5]), rng.choice([None, rng.random()]), rng.choice([None, 1, 4]))
        return {name: draw() for name in step.methods if rng.random() < 0.8}


def all_kinds(kind, texts, seed):
    """A target and methods. texts: {name of a request: its prompt and output}."""
    if kind == "trees":
        return ToyTarget(recurrent=False), [("oracle", RandomTrees(texts, seed)), Ngram(n_min=1)]
    right = Oracle(texts, lambda i, seq: (seq.output_position + i) % 4 > 0, 6)
    methods = [right, Ngram(n_min=1, extend=kind == "splices")]
    if kind == "hybrid":
        return ToyTarget(recurrent=True), [*methods, ToyRollback()]
    return ToyTarget(recurrent=False), methods


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.0, 0.9]),
    slots=st.integers(1, 3),
    kind=st.sampled_from(["chains", "splices", "trees", "hybrid"]),
)
def test_no_controller_changes_a_text(seed, temperature, slots, kind):
    """Random plans, and plans that follow the clock, give the texts of plain decoding."""
    requests = [
        Request([*PROMPT, i], max_tokens=24, seed=seed + i, name=str(i), sampling=Sampling(temperature=temperature))
        for i in range(3)
    ]
    expected = [Run(ToyTarget(recurrent=kind == "hybrid")).generate(r).result.tokens for r in requests]

    texts = {request.name: [*request.prompt, *text] for request, text in zip(requests, expected, strict=True)}
    for controller in (Whims(seed), Auto()):
        target, methods = all_kinds(kind, texts, seed)
        results = finish(Run(target, [controller, *methods], max_sequences=slots), requests)
        assert [r.tokens for r in results] == expected


# what a user says comes first


def lengths_of_drafts(run, *requests):
    """{name: (method, length) of its drafts} of some requests, and their results."""
    drafts = {r.name: [] for r in requests}

    def look(step):
        for part in step.parts:
            if part.draft is not None:
                drafts[part.seq.name].append((part.source, len(part.draft)))

    run.observe(look)
    return drafts, finish(run, requests)


def test_a_request_without_methods_is_never_drafted_for():
    requests = [Request(PROMPT, max_tokens=40, name="a", methods=()), Request(PROMPT, max_tokens=40, name="b")]
    drafts, _ = lengths_of_drafts(Run(QuickTarget(), [Ngram(n_min=1)], control="auto"), *requests)

    assert not drafts["a"]


def test_a_request_is_drafted_for_by_its_own_methods_and_no_longer_than_it_says():
    requests = [
        Request(PROMPT, max_tokens=160, name="a", methods=("ngram",)),
        Request(PROMPT, max_tokens=160, name="b", draft_max=2),
    ]
    run = Run(toy(), [oracle(requests), Ngram(n_min=1)], control="auto")
    drafts, _ = lengths_of_drafts(run, *requests)

    assert {source for source, _ in drafts["a"]} <= {"ngram"}
    assert drafts["b"] and max(length for _, length in drafts["b"]) <= 2


def test_a_request_without_control_drafts_as_if_there_were_none():
    """Also where it runs beside one that is controlled; both texts are the plain ones."""
    requests = [Request(PROMPT, max_tokens=60, name=name, control=name == "b") for name in "ab"]
    alone, _ = lengths_of_drafts(Run(QuickTarget(), [Ngram(n_min=1)]), attrs.evolve(requests[0], control=True))
    drafts, results = lengths_of_drafts(Run(QuickTarget(), [Ngram(n_min=1)], control="auto"), *requests)

    assert drafts["a"] == alone["a"]
    assert results[0].tokens == results[1].tokens == Run(QuickTarget()).generate(requests[0]).result.tokens


# the setting


def test_the_setting_names_the_controller_of_a_run_that_drafts():
    controllers = lambda *arguments, **more: [
        c.name for c in Run(QuickTarget(), *arguments, **more).plugins if c.controls
    ]

    assert controllers(["ngram"], control="auto") == controllers(["auto", "ngram"], control="auto") == ["auto"]
    assert controllers(["ngram"], control="fixed") == controllers([], control="auto") == []
    assert controllers(["ngram", Whims(0)], control="auto") == ["whims"]


def test_settings_of_the_controller_reach_it():
    run = Run(QuickTarget(), ["ngram"], control="auto", plugin_settings={"auto": {"share": 0.05, "balance": 7}})

    account = run.stats.report()["reports"]["auto"]["ledger"]
    assert (account["share"], account["balance_max"]) == (0.05, 7.0)


# what it reports


def test_its_report_has_what_was_chosen_and_what_it_gained():
    request = Request(PROMPT, max_tokens=80, name="a")
    run = Run(toy(), [oracle([request])], control="auto")
    run.generate(request).result
    report = run.stats.report()["reports"]["auto"]

    assert report["steps"] > 5 and report["gain"] > 0
    assert sum(report["off"].values()) <= report["steps"]
    assert report["ledger"]["lowest"] <= report["ledger"]["balance"] <= report["ledger"]["balance_max"]
    of_method = report["methods"]["oracle"]
    assert sum(of_method["lengths"].values()) == of_method["steps"]
    assert 0 < of_method["time_share"] < 1
    assert "times plain decoding's speed" in report["summary"]
    assert report["note"] is None
    assert run.stats.report()["reports"]["auto"] == report, "asking changed it"


@pytest.mark.parametrize(
    ("tokens", "time", "line"),
    [
        (30, 20, "ngram 100% of 20 steps, 1.50 times plain decoding's speed"),
        (20, 20.4, "ngram 100% of 20 steps, 0.98 times plain decoding's speed"),
        (
            1,
            16.5,
            "ngram 100% of 20 steps, 0.06 times plain decoding's speed: "
            "trying drafts cost the time of 16 plain steps; auto.balance and auto.share limit it",
        ),
    ],
)
def test_its_summary_says_what_a_loss_consists_of(tokens, time, line):
    report = Report(Use(20, tokens, time), methods={"ngram": Use(20)})

    assert report.summary() == line


def test_it_says_where_the_text_of_a_seed_depends_on_time():
    """Under a rule with noise of its own the drafts decide which of equally likely texts comes."""
    run = Run(toy(), [Ngram(n_min=1)], rule="rejection", control="auto")
    run.generate(PROMPT, max_tokens=6, sampling=SAMPLED).result

    assert "control=fixed reproduces it" in run.stats.report()["reports"]["auto"]["note"]


def test_a_second_run_begins_anew():
    """What was measured with one target says nothing about another."""
    auto = Auto()
    Run(QuickTarget(), [auto, Ngram(n_min=1)]).generate(PROMPT, max_tokens=30).result
    assert auto.report()["steps"]

    Run(QuickTarget(), [auto, Ngram(n_min=1)])
    assert not auto.report()["steps"]


# a controller that fails


@attrs.define(eq=False)
class Broken:
    """A controller that raises in one hook after some calls. hook: draft, rollback, process or report."""

    hook: str
    calls: int = 0

    def _fail(self, hook):
        self.calls += hook == self.hook
        if hook == self.hook and self.calls > 2:
            raise ValueError("max() arg is an empty sequence")

    @hookimpl
    def compat(self):
        return Compat(drafts=(), report=self._report)

    def _report(self):
        if self.hook == "report":
            raise ValueError("nothing to report")
        return {}

    @hookimpl
    def draft(self, step):
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit(1)), steps=2))
        self._fail("draft")

    @hookimpl
    def rollback(self, step):
        self._fail("rollback")

    @hookimpl
    def process(self, rows):
        self._fail("process")


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
@pytest.mark.parametrize("hook", ["draft", "rollback", "process"])
def test_a_controller_that_fails_is_switched_off_and_drafts_go_on(hook, on_error, caplog):
    request = Request(PROMPT, max_tokens=60, name="a")
    run = Run(toy(), [oracle([request]), ("broken", Broken(hook))], on_error=on_error)
    drafts, results = lengths_of_drafts(run, request)

    assert results[0].tokens == plain(request)
    assert max(length for _, length in drafts["a"]) == 6, "drafts go on by their own settings"
    assert list(run.stats.switched_off) == ["broken"]
    lines = [record.getMessage() for record in caplog.records if "switched off" in record.getMessage()]
    assert len(lines) == 1 and "\n" not in lines[0]


def test_a_report_that_fails_leaves_the_other_statistics():
    run = Run(toy(), [Ngram(n_min=1), ("broken", Broken("report"))])
    run.generate(PROMPT, max_tokens=8).result

    report = run.stats.report()
    assert report["reports"]["broken"] == {"summary": "its report failed: ValueError: nothing to report"}
    assert report["requests"] == 1
