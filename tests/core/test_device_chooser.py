"""Choosers of devices: a run's text with one is the plain text, and one that differs from the core is not used."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch
from toys import DENSE, DRAFTERS, Fixed, drafter, finish, sampling_keywords, together

from spec_core import Draft, Request, Run, SpecError
from spec_core.sampling import device, native
from spec_core.sampling.draws import Draw, pack_draws
from spec_core.testing import ToyConstraint, ToyRollback, ToyTarget
from tests.support import choice_reference as reference
from tests.support.away import Away, AwayTarget

PROMPT = [1, 2, 5]
CPU = torch.device("cpu")


class Rounded(ToyTarget):
    """A target whose logits have a type that choosers take, and the native code of the core does not."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, logits=output.logits.bfloat16())


@attrs.define(eq=False)
class Counting:
    """The twin of the kernels, and how often it was called; ``change`` replaces its answers."""

    change: object = None
    calls: int = 0

    def __call__(self, logits, draws):
        self.calls += 1
        if self.change is not None:
            return self.change(logits, draws)
        return reference.choose_tokens(logits, draws)


@pytest.fixture
def install(monkeypatch):
    """A function that installs choosers for the CPU, as if it were a device."""

    def install(*choosers):
        for cache in caches:
            cache.cache_clear()
        points = [
            SimpleNamespace(name="cpu", value=f"package{i}:chooser", load=lambda chooser=chooser: lambda _: chooser)
            for i, chooser in enumerate(choosers)
        ]
        monkeypatch.setattr(device, "entry_points", lambda: points)

    caches = device._load, device._create
    yield install
    for cache in caches:
        cache.cache_clear()


REQUESTS = [
    Request(PROMPT, max_tokens=12, name="greedy"),
    Request(PROMPT, max_tokens=12, name="sampled", **sampling_keywords((1 << 63) + 5, 0.8)),
    Request(
        PROMPT,
        max_tokens=12,
        name="penalised",
        **sampling_keywords(
            3, 1.2, repetition_penalty=1.4, presence_penalty=0.3, frequency_penalty=0.5, logit_bias={4: 1.5}
        ),
    ),
    Request(PROMPT, max_tokens=12, name="masked", constraint=ToyConstraint(2, share=0.3), **sampling_keywords(4, 1.0)),
    Request(PROMPT, max_tokens=12, name="greedy and masked", constraint=ToyConstraint(3, share=0.3)),
    Request(PROMPT, max_tokens=12, name="cut", **sampling_keywords(5, 1.0, top_k=12, top_p=0.9)),
    Request(PROMPT, max_tokens=12, name="cold and cut", **sampling_keywords(6, 0.0, top_k=2, repetition_penalty=1.8)),
]
PLAIN = {r.name: Run(Rounded()).generate(r).result.tokens for r in REQUESTS}
TEXTS = {r.name: [*r.prompt, *PLAIN[r.name]] for r in REQUESTS}


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_text_through_a_chooser_is_the_plain_text(kind, install):
    """Chains and trees, temperatures, penalties, masks and cuts, all in one run: one call per step."""
    chooser = Counting()
    install(chooser)
    run = Run(Rounded(), [drafter(kind, TEXTS)], rollback=ToyRollback())

    results = together(run, REQUESTS)

    assert [PLAIN[r.name] for r in REQUESTS] == [result.tokens for result in results]
    assert 0 < chooser.calls <= run.target.forwards + 1, "one call per step, beside the comparison"


def test_a_rule_with_private_noise_leaves_its_undecided_sequences_to_the_chooser(install):
    """The words of that noise differ, and the chooser gets them."""
    requests = [Request([1, i], max_tokens=8, name=f"{i}", **sampling_keywords(i, 1.0)) for i in range(3)]
    expected = [result.tokens for result in together(Run(Rounded(**DENSE), rule="rejection"), requests)]
    chooser = Counting()
    install(chooser)

    results = together(Run(Rounded(**DENSE), rule="rejection"), requests)

    assert expected == [result.tokens for result in results]
    assert chooser.calls > 1


@pytest.mark.parametrize("name", ["sampled", "masked", "cut"])
def test_a_row_of_nan_is_the_usual_error(name, install):
    class Poisoned(Rounded):
        def forward(self, batch, needs):
            output = super().forward(batch, needs)
            output.logits[:, 7] = math.nan if self.forwards == 3 else 0.0
            return output

    install(Counting())
    run = Run(Poisoned())
    request = attrs.evolve(next(r for r in REQUESTS if r.name == name), constraint=None)
    seq = run.submit(request)
    finish(run)

    with pytest.raises(SpecError, match="logits are NaN"):
        run.take(seq)
    assert len(seq.tokens) == len(PROMPT) + 2


def test_a_row_that_the_target_did_not_return_ends_its_sequence_alone(install):
    class Forgets(Rounded):
        def forward(self, batch, needs):
            output = super().forward(batch, needs)
            return attrs.evolve(output, logits=output.logits[:-1]) if self.forwards == 5 else output

    install(Counting())
    run = Run(Forgets(), on_error="isolate")
    seqs = [run.submit(request) for request in REQUESTS[:3]]
    finish(run)

    assert [seq.finish for seq in seqs] == ["length", "length", "error"]
    assert [PLAIN[r.name] for r in REQUESTS[:2]] == [run.take(seq).tokens for seq in seqs[:2]]


def with_fields(**fields):
    """The twin's answer to draws with some arrays replaced: a chooser that reads them wrongly."""

    def change(logits, draws):
        return reference.choose_tokens(logits, attrs.evolve(draws, **{k: f(draws) for k, f in fields.items()}))

    return change


def with_answer(answer):
    return lambda logits, draws: answer(*reference.choose_tokens(logits, draws))


def run_out_of_memory(logits, draws):
    raise RuntimeError("out of memory")


WRONG = {
    "half-a-seed": with_fields(seeds=lambda d: d.seeds & np.uint64(0xFFFFFFFF)),
    "no-position": with_fields(counters=lambda d: d.counters * np.array([0, 1, 1], np.uint32)),
    "no-stream": with_fields(counters=lambda d: d.counters * np.array([1, 0, 1], np.uint32)),
    "no-domain": with_fields(counters=lambda d: d.counters * np.array([1, 1, 0], np.uint32)),
    "greedy": with_fields(temperatures=lambda d: d.temperatures * 0),
    "warmer": with_fields(temperatures=lambda d: d.temperatures * 1.5),
    "no-masks": with_fields(masks=lambda d: d.masks | np.uint32(0xFFFFFFFF)),
    "no-bias": with_fields(terms=lambda d: np.where([True, False, False], 0, d.terms)),
    "no-repetition": with_fields(terms=lambda d: np.where([False, True, False], 1, d.terms)),
    "no-penalty": with_fields(terms=lambda d: d.terms * [1, 1, 0]),
    "another-row": with_fields(rows=lambda d: d.rows[::-1].copy()),
    "the-next-token": with_answer(lambda tokens, largest: (tokens + 1, largest)),
    "no-largest": with_answer(lambda tokens, largest: (tokens, np.zeros_like(largest))),
    "nan-unnoticed": with_answer(lambda tokens, largest: (tokens, np.nan_to_num(largest, nan=1.0))),
    "too-few": with_answer(lambda tokens, largest: (tokens[1:], largest[1:])),
    "an-error": run_out_of_memory,
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_chooser_is_refused_and_never_used(kind, install, caplog):
    """It is compared once, which is logged once, and the text is the plain one."""
    chooser = Counting(WRONG[kind])
    install(chooser)
    with caplog.at_level(logging.WARNING, "spec_core"):
        results = together(Run(Rounded()), REQUESTS[:3])

    assert [PLAIN[r.name] for r in REQUESTS[:3]] == [result.tokens for result in results]
    assert chooser.calls == 1
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("tokens of logits on cpu are chosen row by row on the host: the chooser for cpu ")
    assert ("failed: RuntimeError: out of memory" if kind == "an-error" else "is refused: ") in line


def test_two_choosers_of_one_device_are_refused(install):
    install(Counting(), Counting())

    assert "there are several, package0:chooser, package1:chooser" in device.refusal(CPU, torch.float32, 48)


def test_the_environment_tells_whether_a_chooser_is_used(install):
    """Also for devices that this machine has not."""
    install(Counting())
    assert device.fact() == "cpu: on the device, tokens equal the core's; otherwise on the host"

    install(Counting(run_out_of_memory))
    assert device.fact().startswith("cpu: refused, the chooser for cpu failed: RuntimeError: out of memory")


@pytest.mark.parametrize("vocab", [1, 2, 33, 300])
def test_the_comparison_passes_for_the_core_itself(vocab):
    for dtype in device.DTYPES:
        assert device.difference(reference.choose_tokens, CPU, dtype, vocab) is None


def test_rows_that_choosers_do_not_take_are_left_to_the_core(install):
    """Of float64, or with a stride between tokens."""
    install(Counting())

    assert device.device_chooser(torch.zeros(2, 9)) is not None
    assert device.device_chooser(torch.zeros(2, 9, dtype=torch.float64)) is None
    assert device.device_chooser(torch.zeros(9, 2).T) is None


def test_without_a_chooser_nothing_is_compared(monkeypatch, install):
    install()
    monkeypatch.setattr(device, "difference", run_out_of_memory)

    assert device.device_chooser(torch.zeros(2, 9)) is None


def test_masks_of_another_width_are_fitted():
    """Tokens beyond the last word of a mask are not allowed, and words beyond the vocabulary are ignored."""
    short, long = np.array([7], np.uint32), np.array([1, 2, 3, 4], np.uint32)
    draws = [Draw(0, sampling_keywords()["sampling"], (1, 0, 0), 0, mask=mask) for mask in (short, None, long)]

    arrays = pack_draws(draws, 70)

    assert arrays.masked.tolist() == [0, 2]
    assert arrays.masks.tolist() == [[7, 0, 0], [1, 2, 3]]


def test_a_step_copies_the_rows_of_all_sequences_at_once(install, monkeypatch):
    """Logits only: the core's rule does not read the rows of drafts."""
    install()
    monkeypatch.setattr(native, "module", None)
    requests = [Request([1, i], max_tokens=9, name=f"{i}", **sampling_keywords(i, 1.0)) for i in range(3)]
    run = Run(
        AwayTarget(**DENSE), [Fixed(lambda step, seq, budget: Draft([seq.output_position % 48, 5, 7]))], draft_max=3
    )
    seqs = [run.submit(request) for request in requests]
    run.step()
    Away.reads.clear()

    run.step()

    assert all(seq.tokens for seq in seqs)
    assert Away.reads == ["cpu"]
