"""Rules on a device: one transfer a step for all sequences, and the verdicts of the host."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from exact import World, case_of, draws
from sampler import Sampler, near
from spec_rules import block, k_seq, point_mass, rejection, traversal
from spec_rules.decisions import compute_decisions, follow_decision

from spec_core import Request, Run, Sampling
from spec_core.testing import ToyConstraint, ToyTarget
from tests.core.toys import finish
from tests.support.away import Away, AwayTarget

RULES = {"rejection": rejection, "block": block, "traversal": traversal, "k-seq": k_seq, "point-mass": point_mass}
TINY = {"vocab": 24, "width": 6, "recurrent": False}

rules = pytest.mark.parametrize("rule", RULES)


class HostTarget(ToyTarget):
    """The same logits as the device's, on the host."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, logits=output.logits.float())


@pytest.fixture
def reads(monkeypatch):
    """What was read on the host in each call of the hook ``accept``."""
    steps: list[list[str]] = []

    def count(judge):
        def judge_counted(step, decisions):
            Away.reads.clear()
            judge(step, decisions)
            steps.append(list(Away.reads))

        return judge_counted

    for module in RULES.values():
        monkeypatch.setattr(module, "judge_drafts", count(module.judge_drafts))
    return steps


def texts(target: ToyTarget, rule: str, requests: list[Request], shape=(), kind=torch.Tensor) -> list:
    """The tokens of every request, or the class of its error."""
    method = Sampler(near(ToyTarget(**TINY)), shape, True, kind)
    run = Run(target, [method], rule=rule, max_sequences=8, draft_max=4)
    seqs = [run.submit(request) for request in requests]
    finish(run)
    return [seq.error or run.take(seq).tokens for seq in seqs]


def requests_of(**sampling) -> list[Request]:
    return [
        Request([1, i], max_tokens=12, seed=i, sampling=Sampling(**{"temperature": 1.1, **sampling})) for i in range(3)
    ]


@rules
@pytest.mark.parametrize("shape", [(), (2, 2)], ids=["chain", "tree"])
def test_a_step_reads_once_and_its_texts_are_those_of_the_host(rule, shape, reads):
    device = texts(AwayTarget(**TINY), rule, requests_of(), shape, Away)
    steps, _ = list(reads), reads.clear()

    assert device == texts(HostTarget(**TINY), rule, requests_of(), shape)
    assert {tuple(names) for names in steps} == {(), ("tolist",)}, "no draft, and three drafts"


@pytest.mark.parametrize("cut", [{"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}], ids=str)
def test_cuts_copy_the_logits_of_a_step_once_more(cut, reads):
    device = texts(AwayTarget(**TINY), "rejection", requests_of(**cut), (), Away)
    steps, _ = list(reads), reads.clear()

    assert device == texts(HostTarget(**TINY), "rejection", requests_of(**cut))
    assert {tuple(names) for names in steps} == {(), ("cpu", "tolist")}


def test_penalties_and_constraints_are_applied_on_the_device(reads):
    penalties = {"repetition_penalty": 1.5, "presence_penalty": 0.4, "frequency_penalty": 0.3, "logit_bias": {3: 2.0}}
    requests = [*requests_of(**penalties), *requests_of()]
    requests[3:] = [attrs.evolve(request, constraint=ToyConstraint(2, share=0.4)) for request in requests[3:]]
    device = texts(AwayTarget(**TINY), "block", requests, (), Away)
    steps, _ = list(reads), reads.clear()

    assert device == texts(HostTarget(**TINY), "block", requests)
    assert {tuple(names) for names in steps} == {(), ("tolist",)}


@pytest.mark.parametrize("reading", [bool, float, int, torch.Tensor.cpu, torch.Tensor.item, torch.Tensor.numpy])
def test_the_count_finds_a_rule_that_reads_in_between(reading, reads, monkeypatch):
    """Planted: one more look at a number of the device."""
    planted_decisions = lambda case: (reading(case.p(0)[0]) and None) or rejection.decisions(case)
    judge = rejection.judge_drafts
    monkeypatch.setattr(rejection, "judge_drafts", lambda step, decisions: judge(step, planted_decisions))
    texts(AwayTarget(**TINY), "rejection", requests_of())

    assert max(len(names) for names in reads) == 4, "one for each of three sequences more"


@pytest.mark.repeats(5)
@rules
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2), (3, 1)], ids=str)
def test_all_decisions_at_once_give_the_verdict_of_one_after_the_other(rule, shape):
    world, rng = World(3, len(shape) + 1, 5), np.random.default_rng(1)
    for draft, rows, _ in list(draws(world, shape, replace=True, chain=max(shape) == 1))[::5]:
        case = case_of(draft, world.rows(draft), rows.__getitem__)
        uniforms = rng.random(2 * len(draft) + 2)
        numbers, walk = compute_decisions(RULES[rule].decisions(case), uniforms)

        assert walk(numbers.tolist()) == follow_decision(RULES[rule].decisions(case), uniforms)


class Spoiled:
    """The row after the first drafted token of one sequence has no distribution."""

    value: float

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        for part in batch.parts:
            if part.drafted and part.seq.tokens[1] == 1:
                output.logits[part.logits_row + 1] = self.value
        return output


@rules
@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf], ids=str)
def test_rows_without_a_distribution_end_their_sequence_as_on_the_host(rule, value):
    away, host = (type("Target", (Spoiled, base), {"value": value})(**TINY) for base in (AwayTarget, HostTarget))
    on_device, on_host = (list(map(str, texts(target, rule, requests_of()))) for target in (away, host))

    assert on_device == on_host
    assert on_device[1].startswith("[") == (value == np.inf), "tokens, or an error"
    assert on_device[0].startswith("["), "another sequence"
