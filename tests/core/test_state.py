"""After every step the target's state equals that of a new forward over the committed tokens, to 1e-12.

Cases of a rollback that naive implementations break on; each with every strategy, chains and trees.
"""

from __future__ import annotations

import random

import pytest
from toys import (
    RIGHT,
    STRATEGIES,
    Fixed,
    Watcher,
    assert_state,
    drafter,
    finish_checked,
    plain,
    sampling_keywords,
    texts,
    toy_run,
)

from spec_core import Compat, Draft, Request, Run, hookimpl
from spec_core.testing import Oracle, RandomTrees, ToyRollback, ToyTarget
from tests.support.pairs import every_pair

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def right_until(n: int):
    return lambda i, seq: i < n


@every_strategy
@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4], ids=lambda k: f"{k}-of-4-kept")
def test_state_after_any_number_of_kept_drafts(strategy, kept):
    """Nothing, everything, or anything in between accepted."""
    request = Request([1, 2, 3, 4], max_tokens=20, name="a")
    run = toy_run(Oracle(texts([request]), right_until(kept)), strategy)
    seq = run.submit(request)

    finish_checked(run)

    assert plain(request).tokens == run.take(seq).tokens


@every_strategy
def test_state_when_drafting_comes_and_goes(strategy):
    """No draft before a rollback, none after it, two partial acceptances in a row."""
    request = Request([1, 2, 3], max_tokens=30, name="a")
    known = texts([request])["a"]
    pattern = [0, 2, 0, 0, 3, 1, 4, 0]

    def make(step, seq, budget):
        n = min(budget, pattern[seq.verdict_count % len(pattern)])
        at = len(seq.tokens)
        ids = [*known[at : at + n - 1], 0] if n > 1 else known[at : at + n]
        return Draft(ids) if ids else None

    run = toy_run(Fixed(make), strategy)
    seq = run.submit(request)
    finish_checked(run)

    assert known[3:] == run.take(seq).tokens


@every_strategy
@pytest.mark.parametrize("prompt", [1, 2, 3, 4, 5, 6], ids=lambda n: f"prompt-{n}")
def test_state_of_prompts_about_as_long_as_a_draft(strategy, prompt):
    """Prompts of 1 token, of the convolution's width, of K, K+1 and K+2 tokens."""
    request = Request(list(range(prompt)), max_tokens=10, name="a")
    run = toy_run(Oracle(texts([request]), right_until(2)), strategy)
    seq = run.submit(request)

    finish_checked(run)

    assert plain(request).tokens == run.take(seq).tokens


@every_strategy
@pytest.mark.parametrize("kind", ["every-other-right", "trees"])
def test_state_in_a_mixed_batch(strategy, kind):
    """A different number kept per sequence, some without drafts, a prompt in chunks beside them, one cancelled."""
    requests = [
        Request(list(range(1, 2 + 5 * i)), max_tokens=6 + 4 * i, name=f"{i}", **sampling_keywords(i)) for i in range(4)
    ]
    requests[2] = Request(requests[2].prompt, max_tokens=9, name="2", methods=())
    run = toy_run(drafter(kind, texts(requests)), strategy, prefill_chunk=3, draft_max=2, max_batched_tokens=11)
    seqs = [run.submit(r) for r in requests]
    steps = iter(range(1000))

    finish_checked(run, each=lambda: run.cancel(seqs[3]) if next(steps) == 7 else None)

    for seq, request in list(zip(seqs, requests, strict=True))[:3]:
        assert plain(request).tokens == run.take(seq).tokens
    assert run.take(seqs[3]).finish_reason == "cancelled"


@every_strategy
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5, 6, 7], ids=lambda i: f"stop-at-{i}")
def test_state_when_a_stop_lies_inside_the_draft(strategy, at):
    """The stop token is never evaluated: state ends before it, and a second turn on the same rows is right."""
    request = Request([7, 7, 1], max_tokens=12, name="a", **sampling_keywords(3, 1.5))
    known = texts([request])["a"]
    stop = known[3 + at]
    first = known.index(stop, 3) - 3
    stopping = Request([7, 7, 1], max_tokens=12, name="a", stop_tokens={stop}, **sampling_keywords(3, 1.5))
    run = toy_run(drafter("all-right", {"a": known}), strategy)
    seq = run.submit(stopping)

    finish_checked(run)
    result = run.take(seq)

    assert (known[3 : 4 + first], "stop") == (result.tokens, result.finish_reason)
    assert seq.evaluated <= len(seq.tokens) - 1 == seq.delivered
    assert_state(run.target, seq)


@every_strategy
def test_state_of_a_slot_that_is_used_again(strategy):
    """Another text on the same slot starts without any state of the previous one."""
    run = toy_run(RandomTrees({}, trees=True), strategy, max_sequences=1)
    for prompt in ([1, 2, 3, 4, 5], [9, 9], [1, 2, 3, 8]):
        seq = run.submit(prompt, max_tokens=8)
        finish_checked(run)
        assert plain(Request(prompt, max_tokens=8)).tokens == run.take(seq).tokens


class FarRewind:
    """An owner without traces goes back to the start, or to the last checkpoint."""

    def __init__(self, far: str) -> None:
        self.far = far
        self.target = None

    @hookimpl
    def compat(self, target) -> Compat:
        self.target = target
        return Compat(owns={"recurrent"}, drafts=())

    @hookimpl
    def rollback(self, step) -> None:
        for seq, verdict in step.verdicts.items():
            part = step.part(seq)
            if self.far == "always-to-0" or verdict.path:
                place = (
                    0
                    if self.far == "always-to-0"
                    else max((p for p in seq.slot.checkpoints if p <= part.end), default=0)
                )
                self.target.restore(seq, place)
                step.rewind(seq, place)
            if not verdict.path and self.far == "checkpoints" and part.end % 3 == 0:
                seq.slot.checkpoints[part.end] = self.target.checkpoint(seq)


@pytest.mark.parametrize("far", ["always-to-0", "checkpoints"])
@pytest.mark.parametrize("chunk", [1, 4, 256], ids=lambda c: f"chunk-{c}")
@pytest.mark.parametrize("kind", ["every-other-right", "chains", "trees"])
def test_state_after_rewinds_far_behind_the_last_step(kind, chunk, far):
    """Rewound rows become pending rows again, also in chunks; text and state are right, no row is delivered twice."""
    requests = [
        Request([1, 2, 3, 4, 5, 6, 7][: 3 + 4 * i], max_tokens=10, name=f"{i}", **sampling_keywords(i))
        for i in range(2)
    ]
    watcher = Watcher(hidden=(0, 1, 2))
    methods = [drafter(kind, texts(requests)), watcher]
    run = Run(ToyTarget(), methods, rollback=FarRewind(far), prefill_chunk=chunk, draft_max=3)
    seqs = [run.submit(r) for r in requests]

    finish_checked(run)

    assert [plain(r).tokens for r in requests] == [run.take(s).tokens for s in seqs]
    for seq in seqs:
        watcher.check(run.target, seq)


@pytest.mark.parametrize("right", RIGHT)
def test_strategies_cost_one_target_forward_a_step(right):
    """Rewound rows are evaluated in the next forward: no strategy runs more forwards than steps."""
    request = Request([1, 2, 3], max_tokens=20, name="a")
    known = texts([request])
    forwards = set()
    for strategy in STRATEGIES:
        run = toy_run(Oracle(known, RIGHT[right]), strategy)
        stats = run.generate(request).result.stats
        assert stats["steps"] + 1 == run.target.forwards
        forwards.add(run.target.forwards)
    assert len(forwards) == 1


def test_wrong_state_is_found_by_the_gate():
    """The check can fail: it detects an owner that does not restore the convolution window."""

    class Forgets(ToyRollback):
        def _restore(self, step, seq) -> None:
            old = seq.slot.state.recurrent
            super()._restore(step, seq)
            new = seq.slot.state.recurrent
            seq.slot.state.recurrent = type(new)(new.state, old.window)

    request = Request([1, 2, 3], max_tokens=12, name="a")
    run = Run(ToyTarget(), [Oracle(texts([request]))], rollback=Forgets())
    run.submit(request)

    with pytest.raises(AssertionError):
        finish_checked(run)


@pytest.mark.parametrize("seed", range(6))
def test_a_verdict_path_through_a_tree_keeps_just_that_branch(seed):
    """First child, last child, only the root, a leaf: attention rows are compacted along the path."""
    rng = random.Random(seed)
    request = Request([2, 4, 6], max_tokens=24, name="a")
    known = texts([request])["a"]

    def make(step, seq, budget):
        right = known[len(seq.tokens) : len(seq.tokens) + min(budget, 3)]
        if not right:
            return None
        tokens, parents, last = [], [], -1
        for token in right:
            siblings = [(token + 1) % 48, token, (token + 2) % 48]
            rng.shuffle(siblings)
            if budget == 1 or rng.random() < 0.2:
                siblings.remove(token)
            start = len(tokens)
            tokens += siblings
            parents += [last] * len(siblings)
            last = start + siblings.index(token) if token in siblings else start
        return Draft(tokens, parents=parents)

    class Bushy(Fixed):
        @hookimpl
        def compat(self):
            return RandomTrees({}).compat()

    run = toy_run(Bushy(make), STRATEGIES[seed % 3])
    seq = run.submit(request)
    finish_checked(run)

    assert known[3:] == run.take(seq).tokens


SHIPPED = {
    "ngram": ("ngram", {"p_min": 0.0}),
    "suffix": ("suffix", {"p_min": 0.0, "draft_max": 5}),
    "suffix-tree": ("suffix", {"p_min": 0.0, "draft_max": 5, "width": 3}),
    "recycling": ("recycling", {"p_min": 0.0, "draft_max": 3, "width": 1}),
    "recycling-tree": ("recycling", {"p_min": 0.0, "draft_max": 3, "nodes_max": 7}),
}


@every_pair(strategy=STRATEGIES, method=SHIPPED, temperature=[0.0, 0.8], batch=[1, 5])
def test_state_with_methods_that_need_no_weights(strategy, method, temperature, batch):
    prompts = [[1 + i + j % (2 + i) for j in range(8 + 3 * i)] for i in range(5)]
    requests = [
        Request(p, max_tokens=16, name=f"{i}", **sampling_keywords(i, temperature)) for i, p in enumerate(prompts)
    ]
    run = toy_run(SHIPPED[method], strategy, max_sequences=batch)
    seqs = [run.submit(r) for r in requests]

    finish_checked(run)

    results = [run.take(seq) for seq in seqs]
    assert [r.tokens for r in results] == [plain(r).tokens for r in requests]
    assert sum(r.stats["drafted"] for r in results) > 0
