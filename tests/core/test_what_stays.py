"""A run keeps nothing of ended sequences, and plugins cannot change the values that they receive."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from toys import DENSE, Fixed, Says, dense, drafter, plain, sampling_keywords

from spec_core import Draft, Request, Run, Sampling, hookimpl
from spec_core.sampling.noise import gumbel

SAMPLED = {"sampling": Sampling(temperature=0.8, logprobs=2)}


def open_generation(run: Run, i: int):
    """A generation after its first event, and a reference to its sequence."""
    generation = run.generate([1, i % 48], max_tokens=30, seed=i, **SAMPLED)
    next(generation)
    return generation, weakref.ref(generation.seq)


def containers_of(run: Run) -> list:
    outputs = run._outputs
    return [run.results, outputs.queued, outputs.logprobs, run.running, run.waiting, run.stats.running]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "dropped", "read"])
def test_an_iterator_that_ended_leaves_nothing(how):
    """160 of them, closed early, dropped or read to the end: no sequence, result, stream or noise stays."""
    run = dense([drafter("chains", {})])
    seen = []
    for i in range(160):
        generation, seq = open_generation(run, i)
        seen.append(seq)
        if how == "closed":
            generation.close()
        elif how == "read":
            generation.result
        del generation
    run.step()
    gc.collect()

    assert not any(containers_of(run))
    assert [ref() for ref in seen if ref() is not None] == []


def test_a_closed_iterator_leaves_at_once():
    """Without a further step its slot is free, and its result can still be read."""
    run = dense([])
    generation, _ = open_generation(run, 3)

    generation.close()

    assert not any(containers_of(run)) and not run.busy
    assert generation.result.finish_reason == "cancelled"
    assert len(generation.result.tokens) == 1


def test_a_dropped_iterator_ends_its_request():
    """As with a dropped generator: the run does not continue its text."""
    run = dense([])
    for _ in run.generate([1, 2], max_tokens=500):
        break
    run.step()

    assert not run.busy


class Greedy:
    """Asks for more noise than it uses, and writes into all of it."""

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            for i in range(4):
                step.noise(seq, i).zero_()[1] = 100.0


def test_noise_that_a_drafter_writes_into_changes_no_text():
    """It gets a copy; otherwise token 1 would follow for ever."""
    request = Request([1, 2], max_tokens=30, **sampling_keywords(4))

    tokens = dense([Greedy()]).generate(request).result.tokens

    assert plain(request, **DENSE).tokens == tokens


def test_noise_is_the_same_however_often_it_is_asked_for():
    """Also for positions far ahead, and never for earlier ones."""
    references = []

    def make(step, seq, budget):
        for i in (0, 1, 300):
            references.append(step.noise(seq, i))
            assert torch.equal(references[-1], step.noise(seq, i))
            assert torch.equal(references[-1], gumbel(seq.seed, seq.output_position + i, 48))
        with pytest.raises(ValueError, match="the first is 0"):
            step.noise(seq, -1)
        with pytest.raises(TypeError):
            step.noise(seq, 0.5)

    list(dense([Fixed(make)]).generate([1], max_tokens=3, **sampling_keywords(3)))

    assert references


def test_a_buffer_that_a_drafter_uses_again_changes_no_distribution():
    """Rules read the row that each token was drawn from, not the current content of the buffer."""
    buffer, drawn, read = torch.empty(1, 48), {}, {}

    class Reuses(Says):
        @hookimpl
        def draft(self, step):
            for seq, _ in step.undrafted:
                torch.nn.init.uniform_(buffer)
                buffer.div_(buffer.sum())
                drawn[seq] = buffer.clone()
                step.propose(seq, Draft([int(buffer.argmax())], probs=buffer))
            buffer.fill_(1 / 48)

    class Reads(Says):
        @hookimpl
        def accept(self, step):
            read.update({seq: step.part(seq).draft.probs for seq in step.undecided if step.part(seq).draft})

    rule = Reads(judges={"sampled", "deterministic"}, drafts=(), noise="private")
    run = dense([("reuses", Reuses(drafts={"sampled"}))], rule=("rule", rule))
    for i in range(4):
        run.submit([1, i], max_tokens=3, **sampling_keywords(i))
    run.step()
    run.step()

    assert len(drawn) == 4 and all(torch.equal(drawn[seq], read[seq]) for seq in drawn)
