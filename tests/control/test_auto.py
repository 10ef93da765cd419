"""The controller in a run: it obeys requests and settings, and no text depends on it."""

from __future__ import annotations

import random
from itertools import pairwise

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_control.auto import Auto
from spec_control.report import Book
from spec_methods.ngram import Ngram

from spec_core import Compat, Request, Run, Sampling, UsageError, hookimpl
from spec_core.errors import PluginError
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


def finished(run, requests):
    seqs = [run.submit(r) for r in requests]
    for _ in run:
        pass
    return [run.take(seq) for seq in seqs]


@attrs.define(eq=False)
class Whims:
    """A controller that limits, prices, rests, holds and drops by nothing but chance."""

    seed: int
    rng: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.rng = random.Random(self.seed)

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            if self.rng.random() < 0.7:
                step.limit(seq, self.rng.randint(0, budget), self.rng.choice([None, "ngram", "oracle"]))
            if self.rng.random() < 0.7:
                step.set_price(seq, self.rng.random(), self.rng.choice([None, "ngram", "oracle"]))
        if self.rng.random() < 0.1:
            without = self.rng.sample(["ngram", "oracle"], self.rng.randint(0, 2))
            step.rest(self.rng.randint(0, 4), without, joining=self.rng.random() < 0.5)
        if self.rng.random() < 0.2:
            loss, per_token = self.rng.choice([0.0, 1e-4, 1.0]), self.rng.choice([0.0, 1e-5])
            step.hold(self.rng.randint(0, 6), loss, per_token, rest=self.rng.randint(0, 3))
        if self.rng.random() < 0.05:
            step.drop(self.rng.choice(step.parts).seq, self.rng.choice(["ngram", "oracle"]))


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
    """Any limits and prices, at random, and those that follow the clock: the texts of plain decoding."""
    requests = [
        Request([*PROMPT, i], max_tokens=24, seed=seed + i, name=str(i), sampling=Sampling(temperature=temperature))
        for i in range(3)
    ]
    wanted = [Run(ToyTarget(recurrent=kind == "hybrid")).generate(r).result.tokens for r in requests]

    texts = {request.name: [*request.prompt, *text] for request, text in zip(requests, wanted, strict=True)}
    for controller in (Whims(seed), Auto()):
        target, methods = all_kinds(kind, texts, seed)
        results = finished(Run(target, [controller, *methods], max_sequences=slots), requests)
        assert [r.tokens for r in results] == wanted


# what a user says wins


def drafted(run, *requests):
    """{name: lengths of drafts} of some requests, and their results."""
    found = {r.name: [] for r in requests}

    def look(step):
        for part in step.parts:
            if part.draft is not None:
                found[part.seq.name].append((part.source, len(part.draft)))

    run.observe(look)
    return found, finished(run, requests)


def test_a_request_without_methods_is_never_drafted_for():
    requests = [Request(PROMPT, max_tokens=40, name="a", methods=()), Request(PROMPT, max_tokens=40, name="b")]
    found, _ = drafted(Run(QuickTarget(), [Ngram(n_min=1)], control="auto"), *requests)

    assert not found["a"]


def test_a_request_is_drafted_for_by_its_own_methods_and_no_longer_than_it_says():
    requests = [
        Request(PROMPT, max_tokens=60, name="a", methods=("ngram",)),
        Request(PROMPT, max_tokens=60, name="b", draft_max=2),
    ]
    run = Run(toy(), [oracle(requests), Ngram(n_min=1)], control="auto")
    found, _ = drafted(run, *requests)

    assert {source for source, _ in found["a"]} <= {"ngram"}
    assert found["b"] and max(length for _, length in found["b"]) <= 2


def test_a_request_without_control_drafts_as_if_there_were_none():
    """Also where it runs beside one that is controlled; both texts are the plain ones."""
    requests = [Request(PROMPT, max_tokens=60, name=name, control=name == "b") for name in "ab"]
    alone, _ = drafted(Run(QuickTarget(), [Ngram(n_min=1)]), attrs.evolve(requests[0], control=True))
    found, results = drafted(Run(QuickTarget(), [Ngram(n_min=1)], control="auto"), *requests)

    assert found["a"] == alone["a"]
    assert results[0].tokens == results[1].tokens == Run(QuickTarget()).generate(requests[0]).result.tokens


# the setting


def controllers(run):
    return [c.name for c in run.plugins if c.controls]


def test_the_setting_names_the_controller_of_a_run_that_drafts():
    assert controllers(Run(QuickTarget(), ["ngram"], control="auto")) == ["auto"]
    assert controllers(Run(QuickTarget(), ["ngram"])) == []
    assert controllers(Run(QuickTarget(), ["ngram"], control="fixed")) == []
    assert controllers(Run(QuickTarget(), [], control="auto")) == []


def test_a_controller_that_is_named_as_a_method_takes_its_place():
    assert controllers(Run(QuickTarget(), ["ngram", Whims(0)], control="auto")) == ["whims"]
    assert controllers(Run(QuickTarget(), ["auto", "ngram"], control="auto")) == ["auto"]


def test_settings_of_the_controller_reach_it():
    run = Run(QuickTarget(), ["ngram"], control="auto", plugin_settings={"auto": {"share": 0.05, "balance": 7}})

    ledger = run.stats.report()["reports"]["auto"]["ledger"]
    assert (ledger["share"], ledger["balance_max"]) == (0.05, 7.0)


def test_an_unknown_controller_is_refused_with_the_installed_ones():
    with pytest.raises(UsageError, match="no control named 'aut' is installed") as error:
        Run(QuickTarget(), ["ngram"], control="aut")

    assert "auto" in str(error.value)


# the price


@attrs.define(eq=False)
class Priced:
    """Sets one price for everybody, or for one method."""

    price: float
    method: str | None = None

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            step.set_price(seq, self.price, self.method)


@attrs.define(eq=False)
class Asks:
    """Drafts one token, and notes the price."""

    fixed: float | None = None
    heard: list = attrs.field(factory=list)

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            self.heard.append(step.price(seq, self.fixed, 0.3))


@pytest.mark.parametrize(
    ("fixed", "prices", "heard", "priced"),
    [
        (None, [], 0.3, False),
        (None, [Priced(0.12)], 0.12, True),
        (None, [Priced(0.12, "asks")], 0.12, True),
        (None, [Priced(0.12, "other")], 0.0, True),
        (0.7, [Priced(0.12)], 0.7, False),
    ],
    ids=["nobody", "all", "one", "another", "the user"],
)
def test_a_method_hears_the_users_price_or_else_the_controllers(fixed, prices, heard, priced):
    asks, asked = Asks(fixed), []
    run = Run(QuickTarget(), [*prices, asks])
    run.observe(lambda step: asked.append("asks" in step.priced))
    run.generate(PROMPT, max_tokens=3).result

    assert set(asks.heard) == {heard}
    assert any(asked) is priced


def test_a_price_makes_a_lookup_shorter():
    longest = {}
    for price in (0.05, 0.95):
        run = Run(QuickTarget(), [Priced(price), Ngram(n_min=1)])
        longest[price] = sum(
            length for _, length in drafted(run, Request([7, 8] * 12, max_tokens=40, name="a"))[0]["a"]
        )

    assert longest[0.95] < longest[0.05]


def test_only_a_controller_sets_a_price():
    class Greedy(Asks):
        @hookimpl
        def draft(self, step):
            for seq, _ in step.undrafted:
                step.set_price(seq, 0.5)

    with pytest.raises(PluginError, match=r"step\.set_price is for controllers"):
        Run(QuickTarget(), [Greedy()]).generate(PROMPT, max_tokens=3).result


# what it learns from, and says


def test_a_step_knows_what_the_last_one_took():
    seen = []
    run = Run(QuickTarget())
    run.observe(lambda step: seen.append((step.number, step.last_record, step.seconds)))
    run.generate(PROMPT, max_tokens=5).result

    assert [number for number, _, _ in seen] == list(range(len(seen)))
    assert seen[0][1] is None
    for (number, _, seconds), (_, before, _) in pairwise(seen):
        assert before.number == number and before.seconds is seconds
        assert before.total_seconds >= seconds["verify"] > 0


def test_its_report_has_what_was_chosen_and_what_it_gained():
    request = Request(PROMPT, max_tokens=80, name="a")
    run = Run(toy(), [oracle([request])], control="auto")
    run.generate(request).result
    report = run.stats.report()["reports"]["auto"]

    assert report["steps"] > 5 and report["gain"] > 0
    assert sum(report["off"].values()) <= report["steps"]
    assert report["ledger"]["lowest"] <= report["ledger"]["balance"] <= report["ledger"]["balance_max"]
    mine = report["methods"]["oracle"]
    assert 0 <= sum(mine["lengths"].values()) - mine["steps"] <= 2, "the first and the last step have no time"
    assert 0 < mine["time_share"] < 1
    assert "times plain decoding's speed" in report["summary"]
    assert report["note"] is None


@pytest.mark.parametrize(
    ("tokens", "spent", "says"),
    [
        (30, 20, "ngram 100% of 20 steps, 1.50 times plain decoding's speed"),
        (20, 20.4, "ngram 100% of 20 steps, 0.98 times plain decoding's speed"),
        (
            1,
            16.5,
            "ngram 100% of 20 steps, 0.06 times plain decoding's speed: "
            "drafts lost the time of 16 plain steps, which auto.balance and auto.share bound",
        ),
    ],
)
def test_its_summary_says_what_a_loss_is_made_of(tokens, spent, says):
    book = Book(steps=20, tokens=tokens, spent=spent)
    book.of("ngram").steps = 20

    assert book.summary() == says


def test_it_says_where_the_text_of_a_seed_depends_on_time():
    """Under a rule with noise of its own the drafts decide which of equally likely texts comes."""
    run = Run(toy(), [Ngram(n_min=1)], rule="rejection", control="auto")
    run.generate(PROMPT, max_tokens=6, sampling=SAMPLED).result

    assert "control=fixed reproduces it" in run.stats.report()["reports"]["auto"]["note"]


def test_a_second_run_begins_anew():
    """What was measured with one target says nothing about another."""
    auto = Auto()
    Run(QuickTarget(), [auto, Ngram(n_min=1)]).generate(PROMPT, max_tokens=30).result
    assert auto.pacer.steps

    Run(QuickTarget(), [auto, Ngram(n_min=1)])
    assert auto.pacer.steps == 0
