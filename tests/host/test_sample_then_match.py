"""Seed-coupled verification for an engine that chooses its tokens itself: the text is that of a run."""

from __future__ import annotations

import pytest
import torch

from spec_core import Needs, Run, Sampling
from spec_core.errors import TargetError
from spec_core.host import Host, Progress, sample_then_match
from spec_core.testing import ToyTarget
from spec_core.toolkit import evaluate
from tests.support.fake_engine import EVERYTHING, model_of

PROMPT = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
LENGTH = 24
SAMPLING = (
    Sampling(temperature=0.8),
    Sampling(temperature=1.2, top_k=5, top_p=0.9, repetition_penalty=1.2, frequency_penalty=0.1),
    Sampling(temperature=0.0),
)


@pytest.fixture
def target():
    return ToyTarget(context=128, recurrent=False)


def rows(target, tokens: list[int], k: int) -> torch.Tensor:
    """[1 + k, V]: the last rows of a text."""
    return evaluate(target, tokens, Needs(all_logits=True)).logits[-1 - k :]


def text(target, sampling: Sampling, seed: int, methods: list) -> tuple[list[int], int]:
    """The text of an engine that verifies in this way, and how many drafted tokens it accepted."""
    host = Host(model_of(target), methods, EVERYTHING, coupled=True)
    host.begin("a", PROMPT, max_tokens=LENGTH + 9, sampling=sampling, seed=seed, ignore_eos=True)
    tokens, draft, accepted = list(PROMPT), [], 0
    while len(tokens) < len(PROMPT) + LENGTH:
        logits = rows(target, [*tokens, *draft], len(draft))
        new = sample_then_match(logits, draft, tokens, len(PROMPT), sampling, seed)
        tokens += new
        accepted += len(new) - 1
        drafts = host.step({"a": Progress(new, logits=logits)})
        draft = list(drafts["a"].ids) if "a" in drafts else []
    return tokens[len(PROMPT) : len(PROMPT) + LENGTH], accepted


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("sampling", SAMPLING, ids=lambda s: f"{s.temperature}-{s.top_k}")
def test_the_text_is_that_of_a_run_with_and_without_drafts(target, sampling, seed):
    run = Run(target, []).generate(PROMPT, max_tokens=LENGTH, sampling=sampling, seed=seed, ignore_eos=True)
    plain, _ = text(target, sampling, seed, [])
    drafted, _ = text(target, sampling, seed, ["ngram", "recycling"])

    assert plain == drafted == list(run.result.tokens)


def test_drafts_are_accepted_at_a_temperature(target):
    accepted = [text(target, SAMPLING[0], seed, ["recycling"])[1] for seed in range(4)]
    assert sum(accepted) > 0


def test_a_draft_is_kept_up_to_its_first_token_that_is_not_chosen():
    best = torch.eye(8)[[3, 5, 1]]
    assert sample_then_match(best, [3, 5], [0], 1, Sampling(temperature=0.0), 0) == [3, 5, 1]
    assert sample_then_match(best, [3, 4], [0], 1, Sampling(temperature=0.0), 0) == [3, 5]
    assert sample_then_match(best, [2, 5], [0], 1, Sampling(temperature=0.0), 0) == [3]


def test_logits_that_are_no_numbers_are_an_error():
    with pytest.raises(TargetError, match="the target's logits are NaN"):
        sample_then_match(torch.full((1, 8), torch.nan), [], [0], 1, Sampling(), 0)
