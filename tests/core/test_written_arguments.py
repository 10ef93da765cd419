"""A hook that writes into what it was given changes neither a text nor a log-probability."""

from __future__ import annotations

import attrs
import pytest
import torch

from spec_core import Compat, Draft, PluginError, Request, Run, Sampling, hookimpl, load
from spec_core.testing.constraint import ToyConstraint
from spec_core.testing.rollback import ToyRollback
from spec_core.testing.toy import ToyTarget
from tests.support.vandal import HOOKS, Vandal, spoil

PROMPT = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]


@attrs.define(eq=False)
class Repeats:
    """Drafts the tokens after the last place with the same token."""

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            tokens = [token for token in seq.tokens if token >= 0]
            at = next((i for i in reversed(range(len(tokens) - 1)) if tokens[i] == tokens[-1]), None)
            step.propose(seq, Draft(tokens[at + 1 :][: min(3, budget)] if at is not None else [7]))


def requests_of(width):
    embeds = {4: torch.ones(width), 5: torch.full((width,), 0.5)}
    biased = Sampling(temperature=0.8, logit_bias={3: 0.5}, repetition_penalty=1.1, logprobs=3)
    return [
        Request(PROMPT, max_tokens=14, sampling=Sampling(logprobs=2)),
        Request(PROMPT[3:], max_tokens=14, seed=1, sampling=biased),
        Request([5, 5, 5, 9, 5], max_tokens=14, seed=2, sampling=Sampling(temperature=0.8, top_k=5, logprobs=0)),
        Request([7], max_tokens=14, seed=3, sampling=Sampling(temperature=0.8), constraint=ToyConstraint(share=0.5)),
        Request([1, 2, 3, 4, -1, -1, 2, 3], max_tokens=9, seed=4, embeds=embeds, sampling=Sampling(logprobs=1)),
    ]


def results(target, methods, requests, **more):
    with Run(target, methods, prefill_chunk=3, draft_max=3, **more) as run:
        seqs = [run.submit(attrs.evolve(request, ignore_eos=request.constraint is None)) for request in requests]
        while run.busy:
            run.step()
        assert run.stats.switched_off == {}
        return [(r.tokens, r.finish_reason, r.logprobs) for r in map(run.take, seqs)]


@pytest.mark.parametrize("model", ["toy", "recurrent", "pico", "pico-hybrid"])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_writes_into_everything_changes_nothing(model, hook):
    target = {
        "toy": lambda: ToyTarget(context=128, recurrent=False),
        "recurrent": lambda: ToyTarget(context=128),
    }.get(model, lambda: load(f"zoo:{model}"))()
    owner = {"rollback": ToyRollback()} if model == "recurrent" else {}
    requests = requests_of(target.info.width)
    vandal = Vandal((hook,))

    spoilt = results(target, [("vandal", vandal), Repeats()], requests, **owner)

    assert {name for name in vandal.written if not name.startswith("StepRecord.")} == set()
    assert spoilt == results(target, [Repeats()], requests, **owner) == results(target, [], requests)


@attrs.define(eq=False)
class Draws:
    """Drafts two tokens that it draws from a flat distribution."""

    @hookimpl
    def compat(self):
        return Compat(drafts={"sampled"})

    @hookimpl
    def draft(self, step):
        vocab = step.target.info.vocab
        probs = torch.full((2, vocab), 1 / vocab, dtype=torch.float64)
        for seq, budget in step.undrafted:
            ids = [int(step.noise(seq, i).argmax()) for i in range(min(2, budget))]
            step.propose(seq, Draft(ids, probs=probs[: len(ids)]))


@pytest.mark.parametrize("hook", HOOKS)
def test_a_rule_reads_probs_that_no_other_plugin_wrote(hook):
    requests = [Request(PROMPT, max_tokens=20, seed=i, sampling=Sampling(temperature=1.0)) for i in range(6)]
    target = ToyTarget(context=128, recurrent=False, sharpness=0.3)
    spoilt = results(target, [Draws(), ("vandal", Vandal((hook,)))], requests, rule="rejection")

    assert spoilt == results(target, [Draws()], requests, rule="rejection")


class VandalRollback(ToyRollback):
    """An owner of state that does its work, and then writes into all that is not its own."""

    @hookimpl
    def rollback(self, step):
        super().rollback(step)
        self.written = {*spoil(step, frozenset({"checkpoints", "reserved", "trace"}))}


def test_an_owner_of_state_writes_into_nothing_else():
    target, owner = ToyTarget(context=128), VandalRollback()
    requests = requests_of(target.info.width)

    spoilt = results(target, [Repeats()], requests, rollback=owner)

    assert {name for name in owner.written if not name.startswith("StepRecord.")} == set()
    assert spoilt == results(target, [], requests)


def test_a_write_is_refused_with_the_name_of_the_field():
    class Ends:
        @hookimpl
        def process(self, rows):
            for seq, _ in rows.by_sequence():
                seq.finish = "stop"

    with pytest.raises(PluginError, match=r"Sequence\.finish is read-only in hooks"):
        Run(ToyTarget(recurrent=False), [Ends()]).generate([1, 2], max_tokens=3).result


def test_a_sequence_without_rows_in_a_step_cannot_be_written_either():
    """Its plugin knows it from an earlier step."""
    seen, refused = set(), []

    class Keeps:
        @hookimpl
        def process(self, rows):
            seen.update(rows.spans)
            for seq in (seq for seq in seen - {part.seq for part in rows.step.parts} if seq.finish is None):
                for write in (lambda seq=seq: setattr(seq, "max_tokens", 1), lambda seq=seq: seq.tokens.append(1)):
                    with pytest.raises((AttributeError, TypeError)):
                        write()
                    refused.append(seq)

    requests = [Request([1 + i % 9, *range(2, 4 + 5 * i)], max_tokens=9) for i in range(4)]
    target = ToyTarget(recurrent=False)
    with Run(target, [Repeats(), Keeps()], draft_max=3, max_batched_tokens=4) as run:
        seqs = [run.submit(request) for request in requests]
        while run.busy:
            run.step()
        texts = [run.take(seq).tokens for seq in seqs]

    assert refused
    assert texts == [tokens for tokens, _, _ in results(target, [], requests)]


def test_only_the_core_adds_sequences():
    class Adds:
        @hookimpl
        def process(self, rows):
            rows.step.add(rows.step.parts[0])

    with pytest.raises(PluginError, match="only the core adds"):
        Run(ToyTarget(recurrent=False), [Adds()]).generate([1, 2], max_tokens=3).result
