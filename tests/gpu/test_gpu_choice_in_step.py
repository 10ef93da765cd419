"""Tokens that a step chooses at its end: the core's for the same logits, and only where it may."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.choice.chooser import DeviceChoice

from benchmarks.dense_shapes import TINY, dense_target
from spec_core import Draft, Needs, Part, Run, Sampling
from spec_core.contract.layout import lay_out_batch
from spec_core.contract.step import Step
from spec_core.sampling import device
from spec_core.sampling.draws import Draw
from spec_core.toolkit import open_sequence
from tests.gpu.test_gpu_transfers import batch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here, and the device is real")
CHOICES = Needs(choices=True, trees=True)


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    return dense_target(TINY, "cpu", torch.float32)


def text(target, length: int, sampling: Sampling, seed: int):
    seq = open_sequence(target)
    seq.sampling, seq.seed, seq.noise_stream = sampling, seed, seed % 5
    seq.tokens[:] = [random.Random(seed).randrange(TINY.vocab) for _ in range(length)]
    return seq


def step_of(target, parts: list[Part]) -> Step:
    step = Step(target, {}, trees=True)
    for part in parts:
        step.add(part)
    step.batch = lay_out_batch(step, CHOICES, "cpu")
    step.output = target.forward(step.batch, CHOICES)
    return step


def check(step: Step, chosen: set[int]) -> None:
    """The tokens of the parts that are numbered are the core's own, and no other part has any."""
    tokens, largest = step.output.choices() if step.output.choices else ([], [])
    assert [part.seq in step.batch.choices for part in step.parts] == [i in chosen for i in range(len(step.parts))]
    for part in (step.parts[i] for i in chosen):
        for row, depth in enumerate((0, *(part.draft.depths if part.draft else ()))):
            at = part.logits_row + row
            draw = Draw(at, part.seq.sampling, step.choosing(part.seq), part.seq.output_position + depth)
            assert (tokens[at], largest[at]) == draw.choose(step.output.logits)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.5])
@pytest.mark.parametrize("parents", [None, (-1, -1, 0, 1)])
def test_tokens_are_those_of_the_core(target, temperature, parents):
    """Of several texts in one step, with drafts and without, and of the steps after it."""
    texts = [text(target, length, Sampling(temperature), seed) for length, seed in ((9, 1), (1, (1 << 63) + 7))]
    check(step_of(target, [Part(seq, 0, seq.tokens[:], True) for seq in texts]), {0, 1})
    for number in range(4):
        parts = []
        for seq in texts:
            start = len(seq.tokens)
            seq.tokens.append(number)
            draft = Draft([3, 4, 5, 6], parents=parents) if seq is texts[0] else None
            parts.append(Part(seq, start, [number], True, draft=draft))
        check(step_of(target, parts), {0, 1})


def test_a_text_that_was_chosen_for_before_gets_new_noise(target):
    """Neither its place in the batch nor its seed is taken from an earlier step of equal shape."""
    first, second = (text(target, 1, Sampling(1.0), seed) for seed in (3, 4))
    for seq, temperature in ((first, 1.0), (second, 1.0), (first, 0.5), (first, 0.0)):
        seq.sampling = Sampling(temperature)
        check(step_of(target, [Part(seq, len(seq.tokens) - 1, seq.tokens[-1:], True)]), {0})
        seq.tokens.append(5)


def test_rows_with_masks_penalties_and_cuts_are_left_out(target):
    samplings = [Sampling(0.7), Sampling(0.7, presence_penalty=1.0), Sampling(0.7, top_p=0.9), Sampling(0.0, top_k=3)]
    texts = [text(target, 5, sampling, seed) for seed, sampling in enumerate(samplings)]
    held = text(target, 5, Sampling(), 9)
    held.min_tokens = 10
    step = step_of(target, [Part(seq, 0, seq.tokens[:], True) for seq in (*texts, held)])

    check(step, {0, 3})


def test_a_text_that_does_not_decide_has_no_choice(target):
    prompt, other = text(target, 700, Sampling(0.7), 1), text(target, 4, Sampling(0.7), 2)
    step = step_of(target, [Part(prompt, 0, prompt.tokens[:20], False), Part(other, 0, other.tokens[:], True)])

    check(step, {1})


def test_a_step_of_several_chunks_leaves_the_choice_to_its_caller(target):
    prompt = text(target, 700, Sampling(0.7), 1)
    step = step_of(target, [Part(prompt, 0, prompt.tokens[:], True)])

    assert step.batch.choices and step.output.choices is None


def test_a_step_without_a_rule_that_reads_them_has_none(target):
    seq = text(target, 4, Sampling(0.7), 1)
    step = Step(target, {})
    step.add(Part(seq, 0, seq.tokens[:], True))

    assert lay_out_batch(step, Needs(), "cpu").choices == {}


class OnDevice:
    """The logits of a target as a device's: the core chooses from rows of float32 on a CPU itself."""

    def __init__(self, monkeypatch) -> None:
        from spec_core.loop import coupled

        self.calls = 0
        choose = DeviceChoice(torch.device("cpu"))

        def count_calls(logits, draws):
            self.calls += 1
            return choose(logits, draws)

        monkeypatch.setattr(coupled, "KINDS", {})
        monkeypatch.setattr(device, "_load", lambda *_: count_calls)


@pytest.mark.repeats(1)
@pytest.mark.parametrize("methods", [[], ["ngram"]])
def test_a_run_reads_them(target, monkeypatch, methods):
    """Texts equal the host's choice; the chooser is called for penalties alone, and for a whole prompt."""
    prompts = [[1, 2, 3] * 4, [5, 6] * 3]
    samplings = [Sampling(0.0), Sampling(0.8), Sampling(0.8, presence_penalty=0.5)]

    def texts(sampling):
        run = Run(target, methods)
        return [g.result.tokens for g in run.generate(prompts, max_tokens=12, sampling=sampling, ignore_eos=True)]

    expected = [texts(sampling) for sampling in samplings]
    on_device = OnDevice(monkeypatch)
    assert [texts(sampling) for sampling in samplings[:2]] == expected[:2]
    assert on_device.calls == 0
    assert texts(samplings[2]) == expected[2]
    assert on_device.calls


def test_a_step_with_a_choice_waits_for_nothing_but_its_end():
    from spec_kernels.model.batch import Choices

    from spec_core.sampling.draws import PlainRows
    from tests.support.fake_device import FakeDevice

    with FakeDevice() as recorded:
        executor = dense_target(TINY, "cpu", torch.float32).executor
        cache = executor.cache(200)
        for number in range(3):
            choices = Choices([PlainRows(0, Sampling(0.5), (7, 0, 0), 3 + number, range(4))])
            recorded.clear()
            executor.run(batch(cache, 4, choices=choices))
            assert choices.read is not None

        assert recorded.waits == []
        assert recorded.uploads == 1
        assert len(recorded.launches) == 9 * TINY.layers + 3 + 3
