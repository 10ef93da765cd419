"""Seed-coupled verification in place of vLLM's sampler, in a batch where some requests want it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from spec_core import Sampling, UsageError
from spec_core.host import sample_then_match
from tests.support import fake_vllm
from tests.support.hugging_face import directory

VLLM = 7
"""The token that vLLM's own sampler chooses, for each row of a request."""
DEFAULTS = {
    "temperature": 0.8, "seed": None, "top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "logprobs": None, "logprob_token_ids": None, "min_tokens": 0,
    "allowed_token_ids": None, "bad_words": None, "logit_bias": None, "thinking_token_budget": None,
}  # fmt: skip


@pytest.fixture
def first(monkeypatch):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    from spec_engines.vllm import first

    return first


def params(**fields):
    return SimpleNamespace(**{**DEFAULTS, **fields})


def runner_of(*requests):
    """A runner with these parameters in its batch; every prompt is one token."""
    generations = [
        SimpleNamespace(prompt_token_ids=[i], output_token_ids=[2, 3], sampling_params=p)
        for i, p in enumerate(requests)
    ]
    keys = [f"r{i}" for i in range(len(generations))]
    return SimpleNamespace(
        input_batch=SimpleNamespace(req_ids=keys), requests=dict(zip(keys, generations, strict=True))
    )


def reject_all(logits, drafted):
    """vLLM's sampler: it changes the logits, and rejects every draft."""
    counts = [0] if drafted is None else drafted.num_draft_tokens
    logits.zero_()
    ids = torch.full((len(counts), 1 + max(counts)), -1, dtype=torch.int32)
    ids[:, 0] = VLLM
    return SimpleNamespace(sampled_token_ids=ids)


def test_requests_with_a_seed_get_the_tokens_of_the_seed_and_others_those_of_vllm(first):
    torch.manual_seed(0)
    logits = torch.randn(3 + 1 + 2, 32)
    kept, seeds = logits.clone(), (5, None, 9)
    terms = Sampling(temperature=0.8)
    token = sample_then_match(kept[:1], [], [0, 2, 3], 1, terms, 5)[0]
    drafted = SimpleNamespace(num_draft_tokens=[2, 0, 1], draft_token_ids=torch.tensor([token, 4, 6]))
    choosing = first.Choosing(runner_of(*(params(seed=seed) for seed in seeds)), reject_all)
    rows = choosing(logits, drafted).sampled_token_ids.tolist()

    chosen = sample_then_match(kept[:3], [token, 4], [0, 2, 3], 1, terms, 5)
    assert len(chosen) > 1
    assert rows[0] == [*chosen, *[-1] * (3 - len(chosen))]
    assert rows[1] == [VLLM, -1, -1]
    assert [x for x in rows[2] if x >= 0] == sample_then_match(kept[4:], [6], [2, 2, 3], 1, terms, 9)


def test_a_step_without_drafts_is_chosen_too(first):
    logits = torch.randn(1, 32)
    chosen = sample_then_match(logits.clone(), [], [0, 2, 3], 1, Sampling(temperature=0.8), 1)
    output = first.Choosing(runner_of(params(seed=1)), reject_all)(logits, None)
    assert output.sampled_token_ids.tolist() == [chosen]


@pytest.mark.parametrize(
    "asked",
    [{"seed": None}, {"temperature": 0.0}, {"logprobs": 0}, {"bad_words": ["a"]}, {"min_tokens": 3}],
    ids=lambda asked: next(iter(asked)),
)
def test_what_only_the_sampler_of_vllm_does_is_left_to_it(first, asked):
    assert first.is_coupled(params(seed=0))
    assert not first.is_coupled(params(**{"seed": 0, **asked}))


def test_the_runner_is_changed_only_where_it_was_asked_for(first):
    for coupled in (False, True):
        runner = SimpleNamespace(_sample=reject_all, sample_tokens=None, drafter=SimpleNamespace(coupled=coupled))
        first.attach_drafter(runner)
        assert (runner._sample is not reject_all) == coupled


def test_processors_of_logits_are_refused_beside_it(first):
    from spec_engines.vllm.proposer import Proposer

    config = fake_vllm.config(str(directory("zoo:pico")), ["ngram"])
    config.additional_config["spec"]["coupled"] = True
    assert Proposer(config).coupled
    config.model_config.logits_processors = ["mine"]
    with pytest.raises(UsageError, match="seed-coupled tokens are chosen before these run"):
        Proposer(config)
