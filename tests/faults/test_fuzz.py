"""Thousands of steps with plugins that do anything, also what is forbidden: every text is plain decoding's."""

from __future__ import annotations

import random

import pytest

from spec_core import Run, hookimpl, load
from spec_core.testing import Fuzzer, QuickTarget, ToyRollback, ToyTarget, campaign
from spec_core.testing.fuzzer import AFTERWARDS, ANYWHERE, DECIDING, DRAFTING
from spec_core.testing.fuzzing import Report, Round, make_requests, plain_results
from tests.core.toys import STRATEGIES
from tests.support.small_models import tiny_gemma4, tiny_hybrid, tiny_kimi

PROMPTS = [[(7 * i + 3 * j) % 48 for j in range(1 + i % 11)] for i in range(40)]
CODE = [
    "def add(a, b):\n",
    "import os\nimport",
    "x = [1, 1, 1, 1, ",
    "class Point:\n    def",
    "# ",
    "for i in range(10):",
]
STEPS = 1000


def strategy(rng: random.Random) -> ToyRollback:
    return ToyRollback(rng.choice(STRATEGIES))


@pytest.mark.slow
def test_texts_of_a_hybrid_are_plain_under_fuzzers():
    """Rows and recurrent state, three strategies, batches of 1 to 8, temperatures from 0 to 1.5."""
    report = campaign(ToyTarget(), PROMPTS, STEPS, rollback=strategy)
    assert report.accepted > STEPS / 2, "most steps are fuzzed: drafts go on after faults"
    assert report.faults.total() > STEPS / 40


def test_texts_of_a_target_without_memory_are_plain_under_fuzzers():
    """A shorter form of the same test."""
    report = campaign(QuickTarget(), PROMPTS, 2 * STEPS, seed=1)

    assert report.accepted > STEPS
    assert report.faults.total() > STEPS / 20


def test_texts_of_blocks_that_share_caches_are_plain_under_fuzzers():
    """Caches of two shapes, windows shorter than the texts."""
    report = campaign(load(tiny_gemma4()), PROMPTS, STEPS // 8, seed=3)

    assert report.accepted > STEPS / 16
    assert report.faults.total() > STEPS / 320


@pytest.mark.parametrize("path", [tiny_hybrid, tiny_kimi])
def test_texts_of_gated_delta_nets_are_plain_under_fuzzers(path):
    """The torch target and its own owner of state, three strategies, sequences that fail and are cancelled."""
    target = load(path())

    def owner(rng: random.Random) -> tuple[str, dict]:
        return "gdn-rollback", {"strategy": rng.choice(STRATEGIES), "n": rng.choice((1, 4, 16))}

    report = campaign(target, PROMPTS, STEPS // 4, seed=2, rollback=owner)

    assert report.accepted > STEPS / 8
    assert report.faults.total() > STEPS / 160


class Weary(Exception):
    """The exception of a failing owner of state."""


class Shaky(ToyRollback):
    """Raises sometimes, before or after it restored the states."""

    @hookimpl
    def compat(self, target):
        return super().compat(target)

    @hookimpl
    def rollback(self, step):
        turn = self.rng.random()
        if turn < 0.02:
            raise Weary
        super().rollback(step)
        if turn > 0.98:
            raise Weary


def shaky(rng: random.Random) -> Shaky:
    owner = Shaky(rng.choice(STRATEGIES))
    owner.rng = rng
    return owner


def test_an_owner_that_fails_spoils_nobodys_text():
    """Its sequences end; their texts so far are plain, and so are those of the sequences that follow."""
    report = campaign(ToyTarget(), PROMPTS, STEPS // 4, seed=3, rollback=shaky, endings=(Weary,))

    assert 5 < report.ended < report.sequences / 2


@pytest.mark.parametrize("kind", sorted({*ANYWHERE, *DRAFTING, *DECIDING, *AFTERWARDS}))
def test_each_kind_of_fault_is_noticed_and_changes_nothing(kind):
    """Its plugin is switched off; the other one continues to draft."""
    requests = make_requests(PROMPTS[:6], ToyTarget())
    known = plain_results(ToyTarget(), requests)
    texts = {r.name: [*r.prompt, *known[r.name].tokens] for r in requests}
    bad, good = Fuzzer(texts, fault=0.2, only=kind), Fuzzer(texts, seed=1, fault=0)
    run = Run(ToyTarget(), [("bad", bad), ("good", good)], rollback=ToyRollback(), on_error="isolate")
    seqs = {run.submit(r): r.name for r in requests}
    for _ in run:
        pass

    assert all(known[name].tokens == run.take(seq).tokens for seq, name in seqs.items())
    assert {kind: 1} == bad.did
    assert list(run.stats.switched_off) == ["bad"]
    assert "was not refused" not in run.stats.switched_off["bad"]
    assert run.stats.report()["methods"]["good"]["accepted"] > 0


def test_texts_of_a_trained_model_are_plain_under_fuzzers():
    """The longer campaign on it is ``tests/campaigns/fuzz.py``."""
    target = load("zoo:pico")
    prompts = [target.tokenizer.encode(text) for text in CODE]
    report = campaign(target, prompts, 60, longest=12)

    assert report.accepted > 20


def test_a_campaign_is_the_same_twice():
    """Failures can be reproduced: everything depends on the seed."""
    first, second = (campaign(ToyTarget(), PROMPTS[:8], 60, seed=3, rollback=strategy) for _ in range(2))

    assert first == second


class Forgetful(ToyRollback):
    """Leaves the recurrent state where the forward left it, when a path of more than one token was kept."""

    def _restore(self, step, seq):
        if len(step.verdicts[seq].path) < 2:
            super()._restore(step, seq)


def test_a_campaign_finds_a_wrong_rollback():
    """Texts are compared with the plain ones, which detects a state that is not restored."""
    with pytest.raises(AssertionError, match="differs from plain"):
        campaign(ToyTarget(), PROMPTS, STEPS, rollback=lambda rng: Forgetful())


def test_a_campaign_finds_a_fault_that_goes_through(monkeypatch):
    """A fault that is not reported is an error of the core."""
    monkeypatch.setitem(AFTERWARDS, "decides-late", lambda fuzzer, step, seq: None)

    with pytest.raises(AssertionError, match="was not refused"):
        campaign(QuickTarget(), PROMPTS, STEPS)


def test_delays_are_waited_and_change_nothing(monkeypatch):
    """A slow plugin is only slow."""
    waits = []
    monkeypatch.setattr("spec_core.testing.fuzzer.sleep", waits.append)
    target = QuickTarget()
    requests = make_requests(PROMPTS, target)
    known = plain_results(target, requests)
    report = Report()
    for seed in range(8):
        texts = {r.name: [*r.prompt, *known[r.name].tokens] for r in requests}
        fuzzed = Round(target, requests, texts, None, random.Random(seed))
        for fuzzer in fuzzed.fuzzers:
            fuzzer.delay = 0.25
        fuzzed.play(known, report)

    assert all(0 <= wait <= 0.25 for wait in waits)
    assert sum(waits) > 1


def test_a_fuzzer_without_faults_keeps_the_contract():
    """It drafts every kind of proposal, chains and trees, and is never switched off, under ``raise`` neither."""
    requests = make_requests(PROMPTS, ToyTarget())
    known = plain_results(ToyTarget(), requests)
    texts = {r.name: [*r.prompt, *known[r.name].tokens] for r in requests}
    run = Run(ToyTarget(), [Fuzzer(texts, fault=0)], rollback=ToyRollback())
    drafts = []
    run.observe(lambda step: drafts.extend(part.draft for part in step.parts if part.draft))
    seqs = {run.submit(r): r.name for r in requests}
    for _ in run:
        pass

    assert all(known[name].tokens == run.take(seq).tokens for seq, name in seqs.items())
    assert {"deterministic", "sampled", "unknown"} == {draft.proposal for draft in drafts}
    assert any(draft.parents and draft.depth < len(draft) for draft in drafts)
