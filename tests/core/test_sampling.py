"""The choice of a token from logits: the order of warpers, ties, boundaries, the distribution, exact logprobs."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest
import torch
from toys import DRAFTERS, chi_square_p, drafter, forward, plain, texts, together, toy_run

from spec_core import Request, Sampling
from spec_core.sampling import reference
from spec_core.sampling.choose import adjust_row, choose_token, gap, largest_logits, support
from spec_core.sampling.logprob import logprob
from spec_core.testing import ToyTarget

pytestmark = pytest.mark.usefixtures("form_of_choice")


def row(*logits: float) -> torch.Tensor:
    return torch.tensor(logits, dtype=torch.float64)


def distribution(logits, history: list[int], prompt: int, sampling: Sampling) -> np.ndarray:
    """The distribution of a choice, in a simple form: bias, penalties, temperature, top-k, top-p, min-p."""
    x = [float(v) for v in logits]
    for token, bias in sampling.logit_bias.items():
        x[token] += bias
    for token in {t for t in history if t >= 0}:
        x[token] = x[token] / sampling.repetition_penalty if x[token] > 0 else x[token] * sampling.repetition_penalty
    for token in {t for t in history[prompt:] if t >= 0}:
        x[token] -= sampling.presence_penalty + sampling.frequency_penalty * history[prompt:].count(token)
    if sampling.temperature == 0:
        return np.eye(len(x))[max(range(len(x)), key=lambda i: (x[i], -i))]
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    p = np.exp((np.array(x) - max(x)) / sampling.temperature)
    if sampling.top_k:
        order = order[: sampling.top_k]
    if sampling.top_p < 1:
        total, kept, mass = sum(p[i] for i in order), [], 0.0
        for i in order:
            if mass >= sampling.top_p:
                break
            kept.append(i)
            mass += p[i] / total
        order = kept
    if sampling.min_p:
        order = [i for i in order if p[i] >= sampling.min_p * p[order[0]]]
    cut = np.zeros(len(x))
    cut[order] = p[order]
    return cut / cut.sum()


def distribution_of(logits: torch.Tensor, sampling: Sampling, history=(), prompt=0) -> np.ndarray:
    """The distribution of the project's own functions."""
    ids, z = support(adjust_row(logits, sampling, list(history), prompt), sampling)
    p = np.zeros(len(logits))
    p[ids.numpy()] = torch.softmax(z, -1).numpy()
    return p


SETTINGS = {
    "temperature-0.5": {"temperature": 0.5},
    "temperature-2": {"temperature": 2.0},
    "top-k-3": {"top_k": 3},
    "top-k-1": {"top_k": 1},
    "top-p-0.6": {"top_p": 0.6},
    "min-p-0.3": {"min_p": 0.3},
    "min-p-1": {"min_p": 1.0},
    "repetition-1.5": {"repetition_penalty": 1.5},
    "repetition-0.7": {"repetition_penalty": 0.7},
    "presence-1": {"presence_penalty": 1.0},
    "frequency-0.4": {"frequency_penalty": 0.4},
    "bias": {"logit_bias": {2: 2.0, 0: -1.0, 7: -math.inf}},
    "everything": {
        "temperature": 0.7,
        "top_k": 6,
        "top_p": 0.85,
        "min_p": 0.05,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "logit_bias": {5: 1.0},
    },
}
HISTORY = [0, 3, 3, -1, 1, 3, 5, 5]
LOGITS = row(2.0, 1.5, 0.3, 1.9, -0.4, 1.2, -2.0, 0.9)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_support_and_its_distribution_are_those_written_down(name):
    """Exactly, for the example and for random rows."""
    sampling = Sampling(**{"temperature": 1.0, **SETTINGS[name]})
    rng = torch.Generator().manual_seed(0)
    for logits in (LOGITS, *torch.randn(50, 8, generator=rng, dtype=torch.float64)):
        expected = distribution(logits, HISTORY, 4, sampling)
        np.testing.assert_allclose(distribution_of(logits, sampling, HISTORY, 4), expected, rtol=0, atol=1e-12)


@pytest.mark.repeats(9)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_choice_has_the_distribution_written_down(name):
    """Chi-square of 2,000 choices against the directly computed distribution."""
    sampling = Sampling(**{"temperature": 1.0, **SETTINGS[name]})
    adjusted = adjust_row(LOGITS, sampling, HISTORY, 4)
    counts = np.zeros(8)
    for seed in range(2_000):
        counts[choose_token(adjusted, sampling, seed, 0)] += 1

    assert chi_square_p(counts, distribution(LOGITS, HISTORY, 4, sampling)) > 1e-4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sequences_choose_by_the_distribution_written_down(temperature):
    """End to end: every token of a run has a positive chance, and is the argmax at temperature 0."""
    target = ToyTarget()
    for name, settings in SETTINGS.items():
        sampling = Sampling(**{**settings, "temperature": temperature and settings.get("temperature", 1.0)})
        tokens = [1, 2, 1, *plain(Request([1, 2, 1], max_tokens=10, sampling=sampling)).tokens]
        logits = forward(target, tokens)[1].logits
        for at in range(3, 13):
            chance = distribution(logits[at - 1], tokens[:at], 3, sampling)[tokens[at]]
            assert chance > 0, name
            assert temperature or chance == 1, name


def test_penalties_come_before_temperature_and_cuts_behind():
    """Bias applies before top-k, temperature before top-p, and min-p to the remaining tokens."""
    # 1: without its bias token 2 would not be among the two best
    biased = Sampling(temperature=1.0, top_k=2, logit_bias={2: 5.0})
    assert np.flatnonzero(distribution_of(row(3.0, 2.0, 0.0), biased)).tolist() == [0, 2]
    # 2: at temperature 1 the first token has 0.665 of the mass, at 4 only 0.42: a second one is needed
    sharp, flat = (Sampling(temperature=t, top_p=0.5) for t in (1.0, 4.0))
    assert np.flatnonzero(distribution_of(row(2.0, 1.0, 0.0), sharp)).tolist() == [0]
    assert np.flatnonzero(distribution_of(row(2.0, 1.0, 0.0), flat)).tolist() == [0, 1]
    # 3: top-p is taken of what top-k left
    both = Sampling(temperature=1.0, top_k=2, top_p=0.5)
    assert np.flatnonzero(distribution_of(row(0.0, 0.0, 0.0, 0.0), both)).tolist() == [0]


@pytest.mark.parametrize("k, kept", [(1, [1]), (2, [1, 3]), (3, [1, 3, 4]), (4, [0, 1, 3, 4]), (9, [0, 1, 2, 3, 4])])
def test_ties_at_the_kth_place_go_to_the_lowest_id(k, kept):
    """Never more than k tokens, also if logits are equal."""
    logits = row(1.0, 2.0, 1.0, 2.0, 2.0)

    assert kept == sorted(support(logits, Sampling(temperature=1.0, top_k=k))[0].tolist())


def test_many_ties_are_cut_by_id():
    """Sorting keeps the order of equal logits."""
    equal = torch.zeros(5000)
    for cut in ({"top_k": 1000}, {"top_p": 0.2}):
        assert support(equal, Sampling(temperature=1.0, **cut))[0].tolist() == list(range(1000))


def test_ties_go_to_the_lowest_id():
    """At temperature 0, with every path to the argmax."""
    logits = row(1.0, 5.0, 5.0, 5.0)
    assert choose_token(logits, Sampling(), 0, 0) == 1
    assert largest_logits(logits[None].float())[0] == [1]
    assert largest_logits(logits[None].bfloat16())[0] == [1]
    assert choose_token(adjust_row(logits, Sampling(logit_bias={0: 4.0}), [], 0), Sampling(), 0, 0) == 0


def test_equal_scores_go_to_the_lowest_id(monkeypatch):
    """Equal logits with equal noise: the order of the support does not decide."""
    monkeypatch.setattr(reference, "noise", lambda seed, t, ids, *rest: np.zeros(np.shape(ids) or ids))
    for cut in ({}, {"top_k": 3}, {"top_p": 0.99}):
        sampling = Sampling(temperature=1.0, **cut)
        assert reference.choose_token(row(1.0, 3.0, 2.0, 3.0, 3.0).numpy(), sampling, (0, 0, 0), 0)[0] == 1


@pytest.mark.parametrize("top_p, kept", [(0.5, 1), (0.50001, 2), (0.75, 2), (0.76, 3), (0.99, 4), (1.0, 4), (1e-9, 1)])
def test_top_p_keeps_the_fewest_that_reach_the_mass(top_p, kept):
    """Probabilities 1/2, 1/4, 1/8, 1/8: reaching p exactly is enough, and at least one token is kept."""
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64).log2() * math.log(2)

    assert kept == len(support(logits, Sampling(temperature=1.0, top_p=top_p))[0])


@pytest.mark.parametrize("min_p, kept", [(0.5, 2), (0.51, 1), (0.25, 4), (1.0, 1), (0.0, 4)])
def test_min_p_is_a_share_of_the_best(min_p, kept):
    """A token with exactly this share is kept."""
    logits = row(0.0, math.log(0.5), math.log(0.25), math.log(0.25))

    assert kept == len(support(logits, Sampling(temperature=1.0, min_p=min_p))[0])


def test_penalties_see_what_they_say():
    """Repetition looks at prompt and output, presence and frequency at the output only; embedded rows are no tokens."""
    logits = row(1.0, 1.0, -1.0, 1.0)
    history = [0, 2, -1, 3, 3]  # the prompt is [0, 2, -1]

    assert adjust_row(logits, Sampling(repetition_penalty=2.0), history, 3).tolist() == [0.5, 1.0, -2.0, 0.5]
    assert adjust_row(logits, Sampling(presence_penalty=0.5), history, 3).tolist() == [1.0, 1.0, -1.0, 0.5]
    assert adjust_row(logits, Sampling(frequency_penalty=0.25), history, 3).tolist() == [1.0, 1.0, -1.0, 0.5]


def test_adjusting_leaves_the_targets_row_alone():
    """Logits are views of the target's memory, which other plugins read too, so they are not changed."""
    before = LOGITS.clone()
    adjust_row(LOGITS, Sampling(logit_bias={1: 3.0}, repetition_penalty=1.5, presence_penalty=1.0), HISTORY, 4)

    assert torch.equal(before, LOGITS)


def test_the_gap_says_how_near_a_choice_was():
    """Distance of the two best scores; infinite where only one token can be chosen."""
    assert gap(row(1.0, 4.0, 3.5), Sampling(), 0, 0) == 0.5
    assert gap(row(1.0, 4.0), Sampling(temperature=1.0, top_k=1), 0, 0) == math.inf
    assert gap(row(1.0, 4.0, 3.5), Sampling(temperature=1.0), 0, 0) > 0


# logprobs


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_logprobs_of_accepted_tokens_are_those_of_plain_decoding(temperature, kind):
    """Exact for drafted and undrafted tokens alike, with the best tokens beside them."""
    request = Request(
        [4, 2, 6], max_tokens=15, seed=3, name="a", sampling=Sampling(temperature, logprobs=3, presence_penalty=0.3)
    )
    expected = plain(request)
    result = together(toy_run(drafter(kind, texts([request]))), [request])[0]

    assert expected.tokens == result.tokens
    assert len(result.logprobs) == 15
    for ours, theirs in zip(expected.logprobs, result.logprobs, strict=True):
        assert math.isclose(ours.value, theirs.value, abs_tol=1e-12)
        assert [t for t, _ in ours.top] == [t for t, _ in theirs.top]


def test_logprobs_are_log_p_of_the_targets_own_row():
    """Before temperature and penalties; the event of a token carries its own."""
    tokens = [1, 2, 3]
    request = Request(tokens, max_tokens=6, sampling=Sampling(0.8, logprobs=48, top_k=4), seed=1)
    result = plain(request)
    logits = forward(ToyTarget(), tokens + result.tokens)[1].logits
    for i, (token, got) in enumerate(zip(result.tokens, result.logprobs, strict=True)):
        expected = torch.log_softmax(logits[2 + i], -1)
        assert math.isclose(float(expected[token]), got.value, abs_tol=1e-12)
        assert math.isclose(1.0, sum(math.exp(value) for _, value in got.top), abs_tol=1e-9)
        assert expected.sort(descending=True).indices.tolist() == [t for t, _ in got.top]


@pytest.mark.parametrize("best, reported", [(0, 0), (2, 2), (8, 8), (100, 8)])
def test_no_more_best_tokens_than_there_are(best, reported):
    """A number above the vocabulary's size gives the whole vocabulary."""
    assert reported == len(logprob(LOGITS, 0, best).top)


def test_without_asking_there_are_no_logprobs():
    """None, not an empty list."""
    assert plain(Request([1], max_tokens=3)).logprobs is None
    assert attrs.evolve(Sampling(), logprobs=0).logprobs == 0
    assert [lp.top for lp in plain(Request([1], max_tokens=2, sampling=Sampling(logprobs=0))).logprobs] == [(), ()]
