"""What one request may ask of scheduling, reuse and drafts, without a change to its text or to other requests."""

from __future__ import annotations

import pytest
from toys import Fixed, finish, plain, toy_run

from spec_core import Compat, Draft, DraftPlan, Limit, Request, Run, UsageError, hookimpl
from spec_core.contract.trimming import shorten_draft
from spec_core.testing import ToyTarget

SILENT = Fixed(lambda step, seq, budget: None)
CHAIN = Draft([1, 2, 3, 4], confidence=[0.9, 0.6, 0.2, 0.8])
TREE = Draft([1, 2, 3, 4, 5], parents=[-1, -1, 0, 1, 2], confidence=[0.9, 0.3, 0.6, 0.9, 0.5])


def test_a_draft_ends_before_its_first_token_of_low_confidence():
    assert shorten_draft(CHAIN, 0.5, 0).ids == (1, 2)
    assert shorten_draft(CHAIN, 0.5, 0).confidence == (0.9, 0.6)
    assert shorten_draft(CHAIN, 0.1, 0) is CHAIN
    assert shorten_draft(CHAIN, 0.95, 0) is None


def test_a_tree_loses_its_unlikely_nodes_and_what_follows_them():
    cut = shorten_draft(TREE, 0.5, 0)

    assert (cut.ids, cut.parents) == ((1, 3, 5), (-1, 0, 1))


def test_a_draft_shorter_than_the_minimum_is_dropped():
    assert shorten_draft(CHAIN, 0.5, 2) is not None
    assert shorten_draft(CHAIN, 0.5, 3) is None
    assert shorten_draft(Draft([1, 2]), 0.9, 2).ids == (1, 2)  # no confidences: only its length counts


@pytest.mark.parametrize(("asked", "lengths"), [({}, {4}), ({"confidence_min": 0.5}, {2}), ({"draft_min": 5}, {0})])
def test_what_a_request_asks_of_drafts_is_applied_to_it_alone(asked, lengths):
    """The text stays that of plain decoding, and the other request of the run keeps whole drafts."""
    seen = {"a": set(), "b": set()}
    run = toy_run(Fixed(lambda step, seq, budget: CHAIN if budget >= 4 else None))
    run.observe(lambda s: [seen[p.seq.name].add(len(p.draft or ())) for p in s.parts if p.budget >= 4])
    first = run.submit([5, 6], max_tokens=12, name="a", **asked)
    second = run.submit([5, 6], max_tokens=12, name="b")
    finish(run)

    assert seen == {"a": lengths, "b": {4}}
    text = plain(Request([5, 6], max_tokens=12)).tokens
    assert run.take(first).tokens == run.take(second).tokens == text


class Private:
    """A rule with coins of its own."""

    @hookimpl
    def compat(self):
        return Compat(noise="private")

    @hookimpl
    def accept(self, step):
        """Leaves all to the default."""


@pytest.mark.parametrize("asked", [{"confidence_min": 0.5}, {"draft_min": 2}])
def test_a_rule_with_private_noise_judges_every_drafted_token(asked):
    """Dropping drawn tokens by their values would change what the rule emits: refused."""
    run = Run(ToyTarget(recurrent=False), rule=Private())

    with pytest.raises(UsageError, match="must judge"):
        run.submit([1], **asked)


@pytest.mark.parametrize(
    ("field", "value"),
    [("draft_min", -1), ("confidence_min", 1.5), ("confidence_min", float("nan")), ("confidence_min", "x"),
     ("reuse", 1), ("priority", 0.5), ("priority", 1 << 40)],
)  # fmt: skip
def test_a_wrong_wish_is_refused_by_its_name(field, value):
    with pytest.raises(UsageError, match=field):
        toy_run(SILENT).submit([1], **{field: value})


def test_waiting_requests_start_by_priority_and_then_in_order():
    run = toy_run(SILENT, max_sequences=1)
    names = [("a", 0), ("b", 0), ("c", -1), ("d", 5), ("e", -1), ("f", 0)]
    seqs = [run.submit([1, 2], max_tokens=2, name=name, priority=priority) for name, priority in names]
    ended = []
    while run.busy:
        run.step()
        ended += [s.name for s in seqs if s.finish and s.name not in ended]

    assert "".join(ended) == "ceabfd"


def test_a_request_may_refuse_the_rows_of_an_earlier_one():
    run = Run(ToyTarget(recurrent=False))
    prompt = list(range(1, 9))
    run.generate(prompt, max_tokens=2).result

    assert run.generate(prompt, max_tokens=2, reuse=False).result.reused == 0
    assert run.generate(prompt, max_tokens=2).result.reused > 0


def pending(run: Run) -> list[dict[str, int]]:
    """Pending rows of every step, by name."""
    steps: list[dict[str, int]] = []
    run.observe(lambda step: steps.append({p.seq.name: len(p.pending) for p in step.parts}))
    return steps


def test_a_long_prompt_leaves_a_step_that_generates_short():
    """At most prefill_budget prompt rows beside sequences that generate; without such, all that fit."""
    run = toy_run(SILENT, target={"context": 200}, prefill_chunk=64, prefill_budget=8)
    steps = pending(run)
    run.submit([1, 2], max_tokens=40, name="short")
    run.step()
    run.submit(list(range(40)), max_tokens=2, name="long")
    finish(run)

    assert [s["long"] for s in steps if "long" in s][:5] == [8] * 5
    alone = toy_run(SILENT, target={"context": 200}, prefill_chunk=64, prefill_budget=8)
    steps = pending(alone)
    alone.submit(list(range(40)), max_tokens=2, name="long")
    finish(alone)
    assert steps[0] == {"long": 40}


def test_a_short_prompt_does_not_wait_for_long_ones():
    """The oldest prompt keeps half of the room, the rest goes to the shortest first; none stands still for good."""
    run = toy_run(SILENT, target={"context": 200}, prefill_chunk=16, draft_max=0, max_batched_tokens=16)
    steps = pending(run)
    for name, length in (("old", 60), ("long", 60), ("short", 6)):
        run.submit(list(range(length)) if length < 48 else [3] * length, max_tokens=1, name=name, reuse=False)
    finish(run)

    assert steps[0] == {"old": 8, "long": 2, "short": 6}
    assert all(sum(step.values()) <= 16 for step in steps)
    assert "old" in steps[4] and "long" in steps[-1]


class First:
    """Drafts two tokens that it is sure of."""

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            if budget >= 4:
                step.propose(seq, Draft([1, 2], confidence=[0.9, 0.9]))


class Second:
    """Extends that by one token that is likely, and one that is not."""

    @hookimpl
    def compat(self):
        return Compat(drafts={"deterministic"}, extends=True)

    @hookimpl
    def draft(self, step):
        for seq, _, leaf, budget in step.leaves:
            if budget >= 2:
                step.extend(seq, Draft([3, 4], confidence=[0.8, 0.1]), leaf)


@pytest.mark.parametrize(("p_min", "ids"), [(0.0, (1, 2, 3, 4)), (0.5, (1, 2, 3)), (0.85, (1, 2))])
def test_what_extends_a_draft_is_cut_by_its_confidence_too(p_min, ids):
    run, lengths = Run(ToyTarget(recurrent=False), methods=[First(), Second()]), set()
    run.observe(lambda step: lengths.update(p.draft.ids for p in step.parts if p.draft is not None))

    result = run.generate([5, 6], max_tokens=12, confidence_min=p_min).result

    assert lengths == {ids}
    assert result.tokens == plain(Request([5, 6], max_tokens=12), recurrent=False).tokens


class Short:
    """A controller that allows one token."""

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit(1, price=0.5))))


def test_a_request_without_control_keeps_whole_drafts_beside_one_that_is_limited():
    lengths, prices = {"free": set(), "limited": set()}, {"free": set(), "limited": set()}
    run = toy_run(Fixed(lambda step, seq, budget: Draft(CHAIN.ids[:budget]) if budget <= 4 else CHAIN), control=Short())
    run.observe(lambda s: [lengths[p.seq.name].add(len(p.draft or ())) for p in s.parts if p.budget >= 4])
    run.observe(lambda s: [prices[p.seq.name].update(one.price for one in (p.limits or {}).values()) for p in s.parts])
    free = run.submit([5, 6], max_tokens=12, name="free", control=False)
    limited = run.submit([5, 6], max_tokens=12, name="limited")
    finish(run)

    assert lengths == {"free": {4}, "limited": {1}}
    assert prices == {"free": set(), "limited": {0.5}}
    assert run.take(free).tokens == run.take(limited).tokens == plain(Request([5, 6], max_tokens=12)).tokens
    with pytest.raises(UsageError, match="control"):
        run.submit([1], control="fixed")
