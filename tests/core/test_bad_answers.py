"""Any proposal or verdict that breaks the contract is an error of its plugin."""

from __future__ import annotations

import math

import attrs
import pytest
import torch
from toys import DENSE, Fixed, drafter, finish, finish_checked, ones, plain, requests, texts, toy_run

from spec_core import Compat, Draft, Request, Run, Sampling, SpecError, UsageError, Verdict, hookimpl
from spec_core.errors import PluginError, SequencesFailed, TargetError
from spec_core.testing import ToyRollback, ToyTarget

# bad proposals

V = 48
EVEN = torch.full((2, V), 1 / V)


def probs(**cells) -> torch.Tensor:
    row = EVEN.clone()
    for cell, value in cells.items():
        row[0, int(cell[1:])] = value
    return row


BAD = {
    "token-outside-the-vocabulary": lambda: Draft([V]),
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
    "parent-after-its-child": lambda: Draft([1, 2], parents=[1, -1]),
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
    "probs-of-half-precision": lambda: Draft([1, 2], probs=EVEN.bfloat16()),
    "probs-of-a-deterministic-draft": lambda: Draft([1, 2], proposal="deterministic", probs=EVEN),
    "probs-of-an-unknown-draft": lambda: Draft([1, 2], proposal="unknown", probs=EVEN),
    "impossible-token": lambda: Draft([1, 2], probs=probs(c1=0.0, c2=2 / V)),
    "rows-without-probs": lambda: Draft([1], proposal="sampled"),
    "unknown-proposal": lambda: Draft([1], proposal="guessed"),
    "undeclared-proposal": lambda: Draft([1], proposal="unknown"),
    "confidence-of-another-length": lambda: Draft([1, 2], confidence=[0.5]),
    "confidence-above-one": lambda: Draft([1], confidence=[1.5]),
    "confidence-nan": lambda: Draft([1], confidence=[math.nan]),
}


class Proposes(Fixed):
    """May draft trees and sampled rows; one bad proposal for the sequence named ``bad``."""

    @hookimpl
    def compat(self):
        from spec_core import Needs

        return Compat(needs=Needs(trees=True), drafts={"deterministic", "sampled"})


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_proposal_is_its_plugins_error(bad):
    """The error names the plugin; under isolate every text stays plain, and earlier proposals of the step are kept."""

    def make(step, seq, budget):
        return BAD[bad]() if seq.name == "1" and seq.output_position > 2 else Draft([1])

    settings = {"draft_max": 8, "nodes_max": 20}
    run = toy_run(("bad", Proposes(make)), **settings)
    run.submit(requests()[1])
    with pytest.raises(PluginError, match=r"'bad' failed in draft on sequence 1: (Type|Value)Error"):
        finish(run)

    run = toy_run([("bad", Proposes(make)), ("good", ones())], on_error="isolate", **settings)
    seqs = [run.submit(r) for r in requests()]
    finish_checked(run)

    assert [plain(r).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert {"bad"} == set(run.stats.switched_off)
    assert "good" in run.stats.report()["methods"], "the rest of the hook ran"


def test_a_second_proposal_for_a_sequence_is_an_error():
    """The first verdict is kept."""

    class Twice:
        @hookimpl
        def draft(self, step):
            for seq, _ in step.undrafted:
                step.propose(seq, Draft([1]))
                step.propose(seq, Draft([2]))

    with pytest.raises(PluginError, match="was not offered"):
        list(toy_run(Twice()).generate([1, 2], max_tokens=5))


def test_a_tree_without_the_need_is_an_error():
    """Targets prepare for trees, so a plugin that drafts trees must declare it."""
    with pytest.raises(PluginError, match="no plugin declared"):
        list(toy_run(Fixed(lambda step, seq, budget: Draft([1], parents=[-1]))).generate([1, 2], max_tokens=5))


# bad verdicts

VERDICTS = {
    "token-outside-the-vocabulary": lambda: Verdict((), V),
    "negative-token": lambda: Verdict((), -1),
    "float-token": lambda: Verdict((), 1.7),
    "path-outside-the-draft": lambda: Verdict((0, 1, 2), 1),
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
                if seq.output_position > 2:
                    step.decide(seq, VERDICTS[bad]())

    run = Run(ToyTarget(**DENSE), [ones(2)], rule=("rule", Rule()), on_error="isolate")
    seqs = [run.submit(r) for r in requests()]
    finish_checked(run)

    assert [plain(r, **DENSE).tokens for r in requests()] == [run.take(s).tokens for s in seqs]
    assert {"rule"} == set(run.stats.switched_off)


def test_a_fault_of_the_cores_rule_ends_only_the_sequences_it_left_undecided():
    """The core's own rule cannot be switched off: no other rule would decide."""

    class Forgets(ToyTarget):
        def forward(self, batch, needs):
            output = super().forward(batch, needs)
            return attrs.evolve(output, logits=output.logits[:-1]) if self.forwards == 5 else output

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
    """NaN in a row that decides ends that sequence only; no other sequence is affected."""

    class Poisoned(ToyTarget):
        def forward(self, batch, needs):
            output = super().forward(batch, needs)
            for part in batch.parts:
                if part.decides and part.seq.name == "1" and part.seq.output_position == 3:
                    output.logits[part.logits_row, 7] = math.nan
                elif part.decides and part.drafted == 2 and part.seq.output_position == 5:
                    output.logits[part.logits_row + 2] = math.nan  # after a wrong draft: nobody reads it
            return output

    asked = [Request([i, 2], max_tokens=9, name=f"{i}", sampling=Sampling(**cut)) for i in range(3)]
    wrong = drafter("none-right", texts(asked))
    wrong.length = 2
    run = Run(Poisoned(), [wrong], rollback=ToyRollback(), on_error=on_error)
    seqs = [run.submit(r) for r in asked]
    finish(run)

    assert [s.finish for s in seqs] == ["length", "error", "length"]
    assert plain(asked[1]).tokens[:3] == seqs[1].tokens[2:]
    with pytest.raises(SpecError, match="NaN"):
        run.take(seqs[1])
    assert [plain(asked[i]).tokens for i in (0, 2)] == [run.take(seqs[i]).tokens for i in (0, 2)]


def test_sequences_that_a_target_names_end_alone():
    """The others are evaluated in the next step, and their texts are plain."""

    class Full(ToyTarget):
        def forward(self, batch, needs):
            named = [p.seq for p in batch.parts if p.seq.name == "1" and p.seq.output_position >= 3]
            if named:
                raise SequencesFailed({seq: TargetError("no room", hint="wait") for seq in named})
            return super().forward(batch, needs)

    asked = [Request([i, 2], max_tokens=9, name=f"{i}") for i in range(3)]
    plain_texts = [plain(request).tokens for request in asked]
    run = Run(Full(), [drafter("some-right", texts(asked))], rollback=ToyRollback())
    seqs = [run.submit(request) for request in asked]
    finish(run)

    assert [run.take(seqs[i]).tokens for i in (0, 2)] == [plain_texts[0], plain_texts[2]]
    assert seqs[1].tokens[2:] == plain_texts[1][: len(seqs[1].tokens) - 2]
    with pytest.raises(TargetError, match="no room"):
        run.take(seqs[1])


@pytest.mark.parametrize("bias", [{}, {3: 1.0}], ids=["no-bias", "a-bias"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_finite_logit_are_the_targets_fault(temperature, bias):
    """Not the request's: it has forbidden nothing, so a server answers 500 and writes it down."""

    class Silent(ToyTarget):
        def forward(self, batch, needs):
            output = super().forward(batch, needs)
            return attrs.evolve(output, logits=torch.full_like(output.logits, -math.inf))

    run = Run(Silent(), [])
    seq = run.submit([1, 2], sampling=Sampling(temperature, logit_bias=bias))
    finish(run)

    with pytest.raises(TargetError, match="no logit of the target is above -inf") as error:
        run.take(seq)
    assert not isinstance(error.value, UsageError)
