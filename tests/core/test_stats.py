"""Every number of a run, computed by hand from its definition."""

from __future__ import annotations

import pytest
from toys import Fixed, finish, plain, sampling_keywords, texts, toy_run

from spec_core import Compat, Draft, Needs, Request, hookimpl
from spec_core.testing import Oracle


def script_drafter(request: Request, script: list[tuple[int, int] | None], **more):
    """A drafter that drafts d tokens, the first a of them right, step by step; None drafts nothing."""
    known = list(request.prompt) + plain(request).tokens
    turns = iter(script)

    def make(step, seq, budget):
        turn = next(turns, None)
        if turn is None:
            return None
        drafted, right = turn
        ahead = known[len(seq.tokens) : len(seq.tokens) + drafted]
        assert len(ahead) == drafted <= budget
        return Draft([t if i < right else (t + 1) % 48 for i, t in enumerate(ahead)])

    return Fixed(make, **more)


# n = 12: the first token from the prompt, then
#   d = 4, a = 2  -> 3 tokens        (positions 1, 2 kept; 3 tested)
#   no draft      -> 1 token
#   d = 2, a = 2  -> 3 tokens        (positions 1, 2 kept)
#   d = 3, a = 0  -> 1 token         (position 1 tested)
#   d = 1, a = 1  -> 2 tokens
#   no draft      -> 1 token         12 tokens, 11 of them in 6 steps
SCRIPT = [(4, 2), None, (2, 2), (3, 0), (1, 1)]
REQUEST = Request([1, 2, 3], max_tokens=12, name="a")


@pytest.fixture
def report():
    run = toy_run(("mine", script_drafter(REQUEST, SCRIPT)))
    list(run.generate(REQUEST))
    return run.stats.report()


def test_counts(report):
    """Steps with and without drafts; the first token belongs to none."""
    assert (report["steps"], report["emitted"], report["drafts"]) == (6, 11, 4)
    assert (report["drafted"], report["accepted"]) == (10, 5)


def test_pooled_acceptance_length(report):
    """Emitted tokens over steps, including the target's own token."""
    assert report["tokens_per_step"] == 11 / 6
    assert report["accepted_per_step"] == 5 / 6
    assert report["draft_acceptance"] == 5 / 10
    assert report["mean_draft_length"] == 10 / 4


def test_mean_acceptance_length_counts_steps_with_a_draft(report):
    """As in vLLM: steps without a draft are not counted."""
    assert report["mean_acceptance_length"] == 1 + 5 / 4


def test_mean_acceptance_length_of_no_draft_is_nothing():
    run = toy_run(("mine", script_drafter(REQUEST, [])))

    assert run.generate(REQUEST).result.stats["mean_acceptance_length"] is None


def test_marginal_acceptance(report):
    """Accepted at i over steps that drafted at least i, also for positions without accepted drafts."""
    assert report["marginal"] == [3 / 4, 2 / 3, 0 / 2, 0 / 1]


def test_conditional_acceptance(report):
    """Accepted at i over steps that drafted i and accepted i - 1."""
    assert report["conditional"] == [3 / 4, 2 / 2, 0 / 1]


def test_rates_by_position_carry_their_counts(report):
    """The third position of two drafts, tested in the one that kept the second; the fourth was never tested."""
    assert report["drafted_per_pos"] == [4, 3, 2, 1]
    assert report["tested_per_pos"] == [4, 2, 1, 0]
    assert report["accepted_per_pos"] == [3, 2, 0, 0]


def test_counts_by_position_of_no_draft_are_empty():
    stats = toy_run(("mine", script_drafter(REQUEST, []))).generate(REQUEST).result.stats

    assert [stats[f"{what}_per_pos"] for what in ("drafted", "tested", "accepted")] == [[], [], []]


def test_counts_by_method(report):
    """Under the name of the method that drafted."""
    assert report["methods"] == {"mine": {"drafts": 4, "drafted": 10, "accepted": 5, "draft_acceptance": 0.5}}


def test_forwards_and_rows_of_the_target(report):
    """One for the prompt and one a step; three prompt rows, one row a step, and the drafts."""
    assert report["forwards"]["target"] == 7
    assert report["rows"]["target"] == 3 + 6 + 10


def test_the_macro_mean_is_over_requests():
    """Two requests, 11 tokens in 6 steps and 4 in 4: the mean of both ratios, not 15 over 10."""
    other = Request([7, 7], max_tokens=5, name="b", methods=())
    run = toy_run(("mine", script_drafter(REQUEST, SCRIPT)))
    for request in (REQUEST, other):
        list(run.generate(request))
    report = run.stats.report()

    assert (report["tokens_per_step"], report["tokens_per_step_macro"]) == (15 / 10, (11 / 6 + 4 / 4) / 2)
    assert report["requests"] == 2


def test_a_request_without_steps_is_not_in_the_macro_mean():
    """One token from the prompt and none more: nothing to divide by."""
    run = toy_run(("mine", script_drafter(REQUEST, SCRIPT)))
    result = run.generate([5], max_tokens=1).result
    list(run.generate(REQUEST))

    assert (result.stats["steps"], result.stats["tokens_per_step"], result.stats["draft_acceptance"]) == (0, None, None)
    assert run.stats.report()["tokens_per_step_macro"] == 11 / 6


def test_a_result_carries_the_counts_of_its_own_request():
    """The same definitions, for one text."""
    run = toy_run(("mine", script_drafter(REQUEST, SCRIPT)))
    first, second = run.generate(REQUEST), run.generate([9, 9], max_tokens=4, methods=())

    assert first.result.stats["tokens_per_step"] == 11 / 6
    assert (second.result.stats["steps"], second.result.stats["emitted"]) == (3, 3)


@pytest.mark.parametrize("stop_at, accepted, emitted", [(1, 1, 1), (3, 3, 3), (4, 4, 4), (5, 4, 5)])
def test_tokens_behind_a_stop_are_neither_accepted_nor_emitted(stop_at, accepted, emitted):
    """Four right drafts; the text ends at output position ``stop_at``: in the draft, or at the target's own token."""
    text = plain(Request([7, 7, 1], max_tokens=9, **sampling_keywords(2, 1.5))).tokens
    assert len(set(text[:6])) == 6, "the example needs different tokens"
    request = Request([7, 7, 1], max_tokens=9, name="a", stop_tokens={text[stop_at]}, **sampling_keywords(2, 1.5))
    known = {"a": [7, 7, 1, *text]}

    stats = toy_run(Oracle(known)).generate(request).result.stats

    assert (stats["steps"], stats["drafted"], stats["accepted"], stats["emitted"]) == (1, 4, accepted, emitted)


def test_a_rewound_draft_is_not_counted_twice():
    """With checkpoints the accepted drafts are evaluated again, but counted once."""
    reports = []
    for strategy in ("snapshot", "checkpoint"):
        run = toy_run(("mine", script_drafter(REQUEST, SCRIPT)), strategy)
        list(run.generate(REQUEST))
        reports.append({k: v for k, v in run.stats.report().items() if k not in ("seconds", "rows")})

    assert reports[0] == reports[1]


def test_a_chunk_of_a_prompt_is_no_step():
    """Steps that only evaluate prompts are not counted either."""
    run = toy_run(("mine", script_drafter(REQUEST, [])), prefill_chunk=2, draft_max=1)
    stats = run.generate(list(range(9)), max_tokens=1).result.stats

    assert (stats["steps"], run.target.forwards) == (0, 5)


def test_a_tree_counts_its_tokens_as_drafted_and_its_depth_by_position():
    """Six tokens, two deep: six drafted, two positions; acceptance at a position is by steps that reach it."""
    request = Request([1, 2, 3], max_tokens=4, name="a")
    known = texts([request])["a"]

    class Tree(Fixed):
        @hookimpl
        def compat(self):
            return Compat(needs=Needs(trees=True))

    def make(step, seq, budget):
        first, second = known[4], known[5]
        wrong = [(first + 1) % 48, (first + 2) % 48]
        return Draft([*wrong, first, 0 if second else 1, second, 2], parents=[-1, -1, -1, 0, 2, 1])

    stats = toy_run(Tree(make)).generate(request).result.stats

    assert (stats["steps"], stats["drafts"], stats["drafted"], stats["accepted"]) == (1, 1, 6, 2)
    assert (stats["mean_draft_length"], stats["marginal"], stats["conditional"]) == (2.0, [1.0, 1.0], [1.0, 1.0])


def test_a_position_behind_a_leaf_is_not_tested():
    """Two trees, two deep. In the first the kept path ends at a leaf while another branch goes on: the second position
    is reached by the tree and was not tested. In the second tree both positions are kept.
    """
    request = Request([1, 2, 3], max_tokens=6, name="a")
    known = texts([request])["a"]

    class Tree(Fixed):
        @hookimpl
        def compat(self):
            return Compat(needs=Needs(trees=True))

    def make(step, seq, budget):
        right, then = known[len(seq.tokens)], known[len(seq.tokens) + 1]
        parent = 0 if seq.output_position == 1 else 1
        return Draft([(right + 1) % 48, right, then], parents=[-1, -1, parent])

    stats = toy_run(Tree(make)).generate(request).result.stats

    assert (stats["steps"], stats["drafted"], stats["accepted"]) == (2, 6, 1 + 2)
    assert (stats["marginal"], stats["conditional"]) == ([2 / 2, 1 / 2], [2 / 2, 1 / 1])


def test_methods_report_forwards_of_their_own():
    """``step.spent`` counts under the calling plugin's name, in every hook."""

    class Costs(Fixed):
        @hookimpl
        def draft(self, step):
            step.report_cost(forwards=2, rows=5)

        @hookimpl
        def process(self, rows):
            rows.step.report_cost(forwards=1)

    run = toy_run(("costs", Costs(None)))
    list(run.generate([1, 2], max_tokens=4))

    # two steps in which it may draft, four in which it learns
    assert run.stats.report()["forwards"] == {"target": 4, "costs": 2 * 2 + 4}
    assert run.stats.report()["rows"]["costs"] == 10


def test_time_is_split_by_hook_and_plugin():
    """Verify by the core, every turn of every plugin by its wrapper."""
    run = toy_run(("mine", script_drafter(REQUEST, SCRIPT)))
    list(run.generate(REQUEST))
    seconds = run.stats.report()["seconds"]

    assert {"verify", "draft.mine", "accept.coupled", "rollback.target", "rollback.toy-rollback"} <= set(seconds)
    assert all(value >= 0 for value in seconds.values())


def test_cancelled_and_failed_requests_are_counted_with_what_they_emitted():
    """Tokens that were emitted before are kept."""
    run = toy_run(("mine", script_drafter(REQUEST, SCRIPT)))
    seq = run.submit(REQUEST)
    for _ in range(3):
        run.step()
    run.cancel(seq)
    finish(run)

    assert (run.results[seq].stats["steps"], run.results[seq].stats["emitted"]) == (2, 4)
    assert run.stats.report()["requests"] == 1
