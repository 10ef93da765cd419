"""Chooses a token from an adjusted row in numpy: the reference of the native code, and used where that is not built.

All on the host, rows [n] float32 or float64; every number is exact or made by the same operations on every machine.
"""

from __future__ import annotations

import math

import numpy as np

from spec_core.sampling.arithmetic import fine_bits, fine_weights, natural_log, weights
from spec_core.sampling.noise import noise
from spec_core.sampling.parameters import Sampling

NoiseKey = tuple[int, int, int]
"""(seed, stream, domain) of noise."""


def scale_logits(row: np.ndarray, temperature: float) -> np.ndarray:
    """z with maximum 0, so that even a tiny temperature cannot make two values infinite."""
    z = row.astype(np.float64)
    with np.errstate(over="ignore"):
        return (z - z.max()) / temperature


def support(row: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [n] that may be drawn, ascending, and their z = logits / temperature [n], unnormalised log p.

    Each cut keeps a prefix of the order by descending z, then ascending id.
    """
    z = scale_logits(row, sampling.temperature)
    order = rank_ids(z, sampling.top_k or len(z)) if sampling.truncates else np.arange(len(z))
    if sampling.top_p < 1:
        order = order[: _reaching(weights(z[order]), sampling.top_p)]
    if sampling.min_p:
        order = order[z[order] >= natural_log(np.array([sampling.min_p]))]
    ids = np.sort(order)
    return ids, z[ids]


def rank_ids(z: np.ndarray, count: int) -> np.ndarray:
    """Ids of the ``count`` largest by descending z, then ascending id."""
    ids = np.arange(len(z))
    if count < len(z):
        ids = np.flatnonzero(z >= np.partition(z, -count)[-count])
    return ids[np.argsort(-z[ids], kind="stable")][:count]


def _reaching(mass: np.ndarray, share: float) -> int:
    """Number of weights whose sum reaches this share of the total."""
    sums = mass.cumsum()
    needed = np.ceil(share * np.float64(sums[-1]))
    limit = int(needed) if needed < np.float64(sums[-1]) else int(sums[-1])
    return int(np.searchsorted(sums, limit)) + 1


def choose_token(row: np.ndarray, sampling: Sampling, source: NoiseKey, t: int) -> tuple[int, float, float]:
    """The token, its row's largest logit, and the difference of the two best scores.

    The argmax of z + g over the support, or of the row at temperature 0; ties go to the lowest id.
    """
    first = int(row.argmax())
    largest = float(row[first])
    if not math.isfinite(largest):
        return first, largest, math.inf
    if sampling.temperature == 0:
        return first, largest, lead(row.astype(np.float64))
    ids, score = scores(row, sampling, source, t)
    return int(ids[score.argmax()]), largest, lead(score)


def scores(row: np.ndarray, sampling: Sampling, source: NoiseKey, t: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [n] of the support, ascending, and their z + g [n]."""
    seed, stream, domain = source
    ids, z = support(row, sampling)
    return ids, z + noise(seed, t, ids if sampling.truncates else len(row), stream, domain)


def lead(score: np.ndarray) -> float:
    """Difference of the two best scores; infinite if there is only one."""
    if len(score) == 1:
        return math.inf
    second, best = np.partition(score, -2)[-2:]
    return float(best - second)


def mass(row: np.ndarray) -> tuple[int, float, int]:
    """The most likely token, its logit, and the sum of all tokens' fine weights."""
    first = int(row.argmax())
    largest = float(row[first])
    total = int(fine_weights(scale_logits(row, 1.0), fine_bits(len(row))).sum()) if math.isfinite(largest) else 1
    return first, largest, total


def most_likely(row: np.ndarray, count: int) -> list[tuple[int, float]]:
    """The most likely tokens and their probabilities, best first; ties go to the lowest id."""
    count = min(count, len(row))
    if not math.isfinite(row.max()):
        return [(i, 0.0) for i in range(count)]
    z = scale_logits(row, 1.0)
    ids, mass = rank_ids(z, count) if count else np.arange(0), weights(z)
    return list(zip(ids.tolist(), (mass[ids] / mass.sum()).tolist(), strict=True))
