"""Texts of a run with some methods: what the tests of several packages compare with plain decoding."""

from collections import Counter
from functools import cache

import pytest

from spec_core import Run, Sampling, load

PROMPTS = ("def add(a, b):\n", "x = [1, 1, 1, 1, ")
load_target = cache(lambda location, **loading: load(location, threads=1, **loading))


def make_texts(
    methods, temperature, at_once=8, prompts=PROMPTS, max_tokens=24, on_step=None, location="zoo:pico", **loading
):
    """(tokens of eight texts, counts of drafted and accepted tokens). at_once: sequences that run together."""
    run = Run(load_target(location, **loading), methods, max_sequences=at_once)
    if on_step is not None:
        run.observe(on_step)
    sampling = Sampling(temperature=temperature)
    seqs = [run.submit(prompts[i % 2], max_tokens=max_tokens, sampling=sampling, seed=i) for i in range(8)]
    while run.busy:
        run.step()
    results, counts = [run.take(seq) for seq in seqs], Counter()
    for result in results:
        counts.update({name: result.stats[name] for name in ("drafted", "accepted")})
    return [result.tokens for result in results], counts


@pytest.fixture
def texts():
    """``make_texts``; without methods they are plain decoding."""
    return make_texts


@pytest.fixture
def check_plain():
    """Assert that texts with a method are plain decoding's, alone and in a batch; returns the lower counts."""

    def check(make, temperature, **options):
        plain, _ = make_texts([], temperature, **options)
        alone, batch = (make_texts([make()], temperature, at_once, **options) for at_once in (1, 8))
        assert alone[0] == batch[0] == plain
        return alone[1] & batch[1]

    return check
