"""Draft budgets: no longer than can be committed, and within the limits of the request."""

from __future__ import annotations

import attrs
import pytest
from toys import DRAFTERS, Fixed, drafter, plain, sampling_keywords, texts, together, toy_run

from spec_core import Draft, DraftPlan, Limit, Request, Run, RunSettings, UsageError, hookimpl
from spec_core.testing import Oracle, ToyTarget


def asks(n: int = 16) -> Fixed:
    """Records every budget it was offered, and drafts nothing."""
    return Fixed(lambda step, seq, budget: None)


def test_the_budget_leaves_room_for_the_targets_own_token():
    """remaining - 1: with r tokens to come, r - 1 drafts and one more fill it exactly; the last step drafts nothing."""
    method = asks()
    run = toy_run(method, draft_max=4)
    list(run.generate([1, 2], max_tokens=8, name="a"))

    # tokens 2 ... 7 were drafted for with 7 ... 2 to come; token 8 alone is a plain step
    assert [budget for _, budget in method.asked] == [4, 4, 4, 3, 2, 1]


def test_nothing_is_drafted_before_the_first_token():
    """The last prompt row gives the first token; drafting starts after it."""
    method = asks()
    run = toy_run(method, prefill_chunk=2, draft_max=1)
    seq = run.submit([1, 2, 3, 4, 5, 6, 7], max_tokens=3, name="a")
    while len(seq.tokens) == 7:
        run.step()
    assert not method.asked
    run.step()
    assert method.asked == [("a", 1)]


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_the_length_limit_is_met_exactly(n, kind):
    """Never too many tokens, also if a draft is longer than the rest of the output."""
    request = Request([3, 3], max_tokens=n, name="a")
    known = {"a": [3, 3, *plain(attrs.evolve(request, max_tokens=20)).tokens]}

    result = together(toy_run(drafter(kind, known)), [request])[0]

    assert (known["a"][2 : 2 + n], "length") == (result.tokens, result.finish_reason)


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("prompt", [1, 9, 13, 14, 15])
def test_the_context_end_finishes_with_length(prompt, kind):
    """Drafts are clipped at the context; prompt and output fill it exactly."""
    request = Request(list(range(prompt)), max_tokens=100, name="a")
    known = texts([request], context=16)

    result = together(toy_run(drafter(kind, known), target={"context": 16}), [request])[0]

    assert (16 - prompt, "length") == (len(result.tokens), result.finish_reason)
    assert known["a"][prompt:] == result.tokens


def test_no_row_lies_behind_the_context():
    """Positions of pending and draft rows stay below the context, for deep drafts too."""
    positions = []

    class Noting(ToyTarget):
        def forward(self, batch, needs):
            positions.append(int(batch.positions.max()))
            return super().forward(batch, needs)

    request = Request([1, 2], max_tokens=100, name="a")
    known = texts([request], context=12)
    run = Run(Noting(context=12, recurrent=False), [Oracle(known, length=16)])
    list(run.generate(request))

    assert max(positions) < 11


def test_a_prompt_that_fills_the_context_is_refused():
    """One position must be left to generate."""
    run = Run(ToyTarget(context=4))

    with pytest.raises(UsageError, match="4 tokens, the context is 4"):
        run.submit([1, 2, 3, 4])
    assert run.generate([1, 2, 3], max_tokens=9).result.finish_reason == "length"


@pytest.mark.parametrize(
    "request_max, run_max, offered", [(None, 5, 5), (2, 5, 2), (9, 5, 5), (0, 5, None), (3, 0, None)]
)
def test_the_shorter_of_run_and_request_bounds_a_draft(request_max, run_max, offered):
    """``draft_max`` of a request only shortens; 0 on either side is plain decoding."""
    method = asks()
    run = toy_run(method, draft_max=run_max)
    list(run.generate([1, 2], max_tokens=30, draft_max=request_max))

    assert offered == max((budget for _, budget in method.asked), default=None)


def test_a_request_chooses_among_the_methods():
    """``methods`` of a request: only these draft for it; an empty tuple is plain decoding."""
    requests = [
        Request([1, 2], max_tokens=10, name="both"),
        Request([1, 2, 3], max_tokens=10, name="second", methods=("second",)),
        Request([4, 5], max_tokens=10, name="none", methods=()),
    ]
    first, second = asks(), asks()
    run = toy_run([("first", first), ("second", second)])
    results = together(run, requests)

    assert {"both"} == {name for name, _ in first.asked}
    assert {"both", "second"} == {name for name, _ in second.asked}
    assert [plain(r).tokens for r in requests] == [r.tokens for r in results]


def test_a_method_of_a_request_may_stand_alone():
    run = toy_run([("first", asks()), ("second", asks())])
    seq = run.submit([1], methods="second")

    assert seq.wants("second") and not seq.wants("first")


def test_a_method_of_a_run_may_stand_alone():
    with pytest.raises(UsageError, match="named 'nobody'"):
        Run(ToyTarget(), methods="nobody")


def test_keywords_are_stronger_than_settings():
    run = Run(ToyTarget(), settings=RunSettings(draft_max=3, max_sequences=2), draft_max=5)

    assert (run.settings.draft_max, run.settings.max_sequences) == (5, 2)


def test_an_unknown_method_of_a_request_is_refused():
    """The message names what the run has."""
    run = toy_run([("first", asks())])

    with pytest.raises(UsageError, match="names second, this run has first"):
        run.submit([1], methods=("second",))


def test_a_method_cannot_propose_for_a_request_that_did_not_choose_it():
    """Also if the method finds the sequence in another way than ``undrafted``."""

    class Pushy:
        @hookimpl
        def draft(self, step):
            for part in step.parts:
                step.propose(part.seq, Draft([1]))

    run = toy_run([("pushy", Pushy()), ("other", asks())], on_error="isolate")
    requests = [Request([1, 2], max_tokens=5, methods=(name,)) for name in ("other", "pushy")]

    generated = run.generate(requests)

    assert [plain(request).tokens for request in requests] == [one.result.tokens for one in generated]
    assert "not offered" in run.stats.switched_off["pushy"]


@pytest.mark.parametrize("n", [0, -1])
def test_requests_for_nothing(n):
    """0 tokens is a finished text without a step; fewer are refused."""
    run = Run(ToyTarget())
    if n < 0:
        with pytest.raises(UsageError, match="max_tokens = -1"):
            run.submit([1], max_tokens=n)
        return
    result = run.generate([1], max_tokens=0).result
    assert (result.tokens, result.finish_reason, run.target.forwards) == ([], "length", 0)


@pytest.mark.parametrize("trees", [False, True], ids=["chains", "trees"])
@pytest.mark.parametrize("max_batched_tokens", [1, 2, 3, 6, 10, 33])
def test_a_forward_never_has_more_rows_than_allowed(max_batched_tokens, trees):
    """Pending rows, drafts and trees of all sequences together stay within ``max_batched_tokens``."""
    rows = []

    class Noting(ToyTarget):
        def forward(self, batch, needs):
            rows.append(len(batch.tokens))
            return super().forward(batch, needs)

    requests = [Request(list(range(1 + 7 * i)), max_tokens=12, name=f"{i}", **sampling_keywords(i)) for i in range(3)]
    method = drafter("trees" if trees else "chains", texts(requests, recurrent=False))
    method.nodes_max = 40
    run = Run(Noting(recurrent=False), [method], max_batched_tokens=max_batched_tokens)

    results = together(run, requests)

    assert max(rows) <= max_batched_tokens
    assert [plain(r, recurrent=False).tokens for r in requests] == [r.tokens for r in results]


def test_a_draft_does_not_take_the_row_of_another_sequence():
    """With few rows, all decoding sequences continue in every step; drafts share the remaining rows."""
    requests = [Request([i, i], max_tokens=12, name=f"{i}") for i in range(4)]
    run = toy_run(drafter("none-right", texts(requests)), max_batched_tokens=8)
    seqs = [run.submit(r) for r in requests]
    while any(len(s.tokens) == s.prompt_len for s in seqs):
        run.step()

    before = [len(s.tokens) for s in seqs]
    run.step()

    assert all(len(s.tokens) > n for s, n in zip(seqs, before, strict=True))


def test_more_sequences_than_rows_all_come_to_an_end():
    """With one row per forward, all sequences finish, one after the other."""
    requests = [Request([i, i + 1], max_tokens=5, name=f"{i}") for i in range(6)]

    results = together(Run(ToyTarget(), max_batched_tokens=2, max_sequences=6, prefill_chunk=1, draft_max=0), requests)

    assert [plain(r).tokens for r in requests] == [r.tokens for r in results]


def test_a_plan_limits_each_method():
    """One that it does not name is offered nothing, nor is one with a limit of 0."""
    offers = []

    class Control:
        @hookimpl(tryfirst=True)
        def draft(self, step):
            step.plan(DraftPlan({"short": Limit(2), "long": Limit(3), "off": Limit(0)}))

    def noting(name):
        return name, Fixed(lambda step, seq, budget: offers.append((name, budget)))

    run = toy_run([noting("off"), noting("short"), noting("long"), noting("missing"), Control()])
    list(run.generate([1, 2], max_tokens=20))

    assert offers[:2] == [("short", 2), ("long", 3)]
    assert {name for name, _ in offers} == {"short", "long"}


def test_a_tree_is_bounded_in_tokens_and_in_depth():
    """``step.nodes`` bounds the tokens of a tree, the budget its depth; for chain targets both are the budget."""
    seen = []
    run = toy_run(Fixed(lambda step, seq, budget: seen.append((budget, step.nodes(seq)))), draft_max=3, nodes_max=9)
    list(run.generate([1, 2], max_tokens=9))
    assert all(budget == nodes for budget, nodes in seen)

    class Tree(Fixed):
        @hookimpl
        def compat(self):
            from spec_core import Compat, Needs

            return Compat(needs=Needs(trees=True))

    trees = []
    run = toy_run(Tree(lambda step, seq, budget: trees.append((budget, step.nodes(seq)))), draft_max=3, nodes_max=9)
    list(run.generate([1, 2], max_tokens=9))
    assert trees[0] == (3, 9) and {nodes for _, nodes in trees} == {9}
