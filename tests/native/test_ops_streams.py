"""Operators of hyper-connections, native and in torch: against float64, and equal bits in any company."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ops_library import at, each_isa, same, table
from spec_kernels.model.mixed_streams import mix_streams, stream_weights, sum_streams
from spec_kernels.model.shapes import StreamShape

pytestmark = pytest.mark.compiles
STREAMS = [1, 2, 3, 4, 16]
EPS = 1e-4


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def balance(x: np.ndarray, base: np.ndarray, scale: np.ndarray, streams: int, rounds: int) -> np.ndarray:
    """The weights of ``StreamWeights``, float64 [R, 2 n + n²]."""
    by = np.repeat(scale, [streams, streams, streams**2])
    pre, post, mix = np.split(x.astype(np.float64) * by + base, [streams, 2 * streams], 1)
    pre, post = 1 / (1 + np.exp(-pre)) + EPS, 2 / (1 + np.exp(-post))
    mix = mix.reshape(-1, streams, streams)
    mix = np.exp(mix - mix.max(2, keepdims=True))
    mix = mix / mix.sum(2, keepdims=True) + EPS
    for turn in range(2 * rounds - 1):
        mix = mix / (mix.sum(1 + turn % 2, keepdims=True) + EPS)
    return np.concatenate([pre, post, mix.reshape(len(x), -1)], 1)


def weights_of(isa: str, x: np.ndarray, streams: int, rounds: int) -> np.ndarray:
    count = x.shape[1]
    base, scale, out = normal(9, count), normal(8, 3), np.full_like(x, np.nan)
    table(isa).stream_weights(at(x), count, at(base), at(scale), len(x), streams, EPS, rounds, at(out), count)
    return out


@each_isa
@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("rounds", [1, 2, 20])
def test_weights_of_streams_are_the_formula(isa, streams, rounds):
    x = 3 * normal(streams, 5, (2 + streams) * streams)
    got = weights_of(isa, x, streams, rounds)

    base, scale, shape = normal(9, x.shape[1]), normal(8, 3), StreamShape(streams, EPS, rounds)
    expected = balance(x, base, scale, streams, rounds)
    np.testing.assert_allclose(got, expected, rtol=2e-5)
    reference = stream_weights(torch.tensor(x), shape, torch.tensor(base), torch.tensor(scale))
    np.testing.assert_allclose(reference, expected, rtol=2e-5)
    assert same(got, weights_of("generic", x, streams, rounds))
    assert same(got[3:4], weights_of(isa, np.ascontiguousarray(x[3:4]), streams, rounds))


@each_isa
def test_columns_of_the_mixing_matrix_add_up_to_one_and_rows_nearly_do(isa):
    mix = weights_of(isa, normal(0, 7, 24), 4, 20)[:, 8:].reshape(7, 4, 4)

    np.testing.assert_allclose(mix.sum(1), 1, atol=2 * EPS)
    np.testing.assert_allclose(mix.sum(2), 1, atol=2 * EPS)


@each_isa
@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("width", [1, 16, 40, 129])
def test_sums_and_mixes_of_streams_are_formulas(isa, streams, width):
    rows, count = 3, (2 + streams) * streams
    x, y, weights = normal(1, rows, streams * width), normal(2, rows, width), normal(3, rows, count)
    parts, out = x.reshape(rows, streams, width).astype(np.float64), np.full((rows, width), np.nan, np.float32)
    table(isa).stream_sum(at(x), streams * width, at(weights), count, rows, streams, width, at(out), width)
    mean = np.full_like(out, np.nan)
    table(isa).stream_sum(at(x), streams * width, None, 0, rows, streams, width, at(mean), width)
    mixed = x.copy()
    table(isa).stream_mix(at(mixed), streams * width, at(y), width, at(weights), count, rows, streams, width)

    post, mix = weights[:, streams : 2 * streams], weights[:, 2 * streams :].reshape(rows, streams, streams)
    expected = post[:, :, None] * y[:, None] + np.einsum("rji,rjw->riw", mix.astype(np.float64), parts)
    own = [torch.tensor(m) for m in (x, y, weights)]
    for sums, means, mixes in (
        (out, mean, mixed),
        (sum_streams(own[0], own[2], streams), sum_streams(own[0], None, streams), mix_streams(*own, streams)),
    ):
        np.testing.assert_allclose(sums, (weights[:, :streams, None] * parts).sum(1), atol=1e-5)
        np.testing.assert_allclose(means, parts.mean(1), atol=1e-6)
        np.testing.assert_allclose(mixes.reshape(expected.shape), expected, atol=2e-5)
    again = x.copy()
    table("generic").stream_mix(at(again), streams * width, at(y), width, at(weights), count, rows, streams, width)
    assert same(mixed, again)
