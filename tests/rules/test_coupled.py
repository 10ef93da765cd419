"""The default rule: a seed's text is plain decoding's, and over seeds its distribution is the target's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampler import SAMPLED, Sampler, near

from spec_core import Run
from spec_core.sampling.choose import choose_token
from spec_core.testing import ToyTarget
from tests.core.toys import chi_square_p, finish

SEEDS, DRAWS = 1000, 20_000
TARGET = {"vocab": 8, "width": 4, "recurrent": False, "sharpness": 1.5}


def texts(target: ToyTarget, methods: list) -> list[list[int]]:
    run = Run(target, methods, max_sequences=32)
    seqs = [run.submit([1, 5], max_tokens=5, seed=seed, sampling=SAMPLED) for seed in range(SEEDS)]
    finish(run)
    return [run.take(seq).tokens for seq in seqs]


@pytest.mark.slow
def test_a_thousand_seeds_give_the_text_of_plain_decoding():
    """Token for token, with a drafter that samples and is often right."""
    target = ToyTarget(**TARGET)
    plain = texts(target, [])

    assert plain == texts(target, [Sampler(near(target))])
    assert len({tuple(text) for text in plain}) > SEEDS / 2, "the seeds do give different texts"


def test_tokens_of_a_row_have_its_distribution():
    """20,000 draws over neighbouring seeds and positions."""
    row = torch.tensor([0.3, -1.2, 2.0, 0.0, 1.1, -0.4, 0.9, -2.5])
    places = ((i // 100, i % 100) for i in range(DRAWS))
    counts = np.bincount([choose_token(row, SAMPLED, seed, t) for seed, t in places], minlength=len(row))

    assert chi_square_p(counts, torch.softmax(row.double(), -1).numpy()) > 1e-3
