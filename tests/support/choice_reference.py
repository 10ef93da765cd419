"""The choice of tokens in numpy, row by row: what the kernels must give, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from spec_kernels.gpu.choice.description import Draws
from torch import Tensor

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
INCREMENTS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOWER = np.uint64(1 << 31)
"""Added to a counter for the lower halves of its uniforms."""
SERIES = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)


def choose_tokens(logits: Tensor, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Choose a token for each of N draws: the argmax of logit / temperature + Gumbel noise, ties to the lowest id.

    logits: [R, V] float32, bfloat16 or float16 on the host
    returns tokens [N] int32 and the largest logits [N] float32, NaN if any logit of the row is
    """
    chosen = [_choose(row, draws, i) for i, row in enumerate(adjusted_rows(logits, draws))]
    tokens, largest = zip(*chosen, strict=True)
    return np.array(tokens, np.int32), np.array(largest, np.float32)


def adjusted_rows(logits: Tensor, draws: Draws) -> Iterator[np.ndarray]:
    """The row [V] float32 of every draw, after mask, bias and penalties."""
    masks = dict(zip(draws.masked.tolist(), draws.masks, strict=True))
    for i, at in enumerate(draws.rows):
        row = logits[int(at)].to(torch.float32, copy=True).numpy()
        if i in masks:
            allowed = np.unpackbits(masks[i].view(np.uint8), count=len(row), bitorder="little")
            row[allowed == 0] = -np.inf
        ids, (bias, repetition, penalty) = draws.ids[draws.changed == i], draws.terms[draws.changed == i].T
        values = (row[ids].astype(np.float64) + bias).astype(np.float32).astype(np.float64)
        values = np.where(values > 0, values / repetition, values * repetition).astype(np.float32)
        row[ids] = (values.astype(np.float64) - penalty).astype(np.float32)
        yield row


def _choose(row: np.ndarray, draws: Draws, i: int) -> tuple[int, float]:
    first = int(row.argmax())
    largest, temperature = row[first], draws.temperatures[i]
    if not np.isfinite(largest) or temperature == 0:
        return first, float(largest)
    with np.errstate(over="ignore"):
        z = (row.astype(np.float64) - np.float64(largest)) / temperature
    return int((z + gumbel(draws.seeds[i], draws.counters[i], len(row))).argmax()), float(largest)


def gumbel(seed: np.uint64, words: np.ndarray, vocab: int) -> np.ndarray:
    """Gumbel noise [V] float64 of all tokens. words: [3], the counter's after its first."""
    counter = np.arange(-(-vocab // 64) * 16, dtype=np.uint64)
    high, low = (_spread(philox(seed, counter | half, words.astype(np.uint64))) for half in (np.uint64(0), LOWER))
    whole = high << np.uint64(20) | low >> np.uint64(12)
    return -log(-log((whole.astype(np.float64) + 0.5) * 2.0**-52))[:vocab]


def _spread(words: tuple[np.ndarray, ...]) -> np.ndarray:
    """Words of counters, in the order of tokens: id 64 b + 16 w + j has word w of counter 16 b + j."""
    return np.stack(words).reshape(4, -1, 16).swapaxes(0, 1).reshape(-1)


def philox(seed: np.uint64, counter: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, ...]:
    """Four random words of each counter, uint64 below 2**32: Philox4x32-10 (Salmon et al., SC'11)."""
    c0, c1, c2, c3 = counter, *np.broadcast_arrays(*words[:, None] + np.zeros_like(counter))
    k0, k1 = seed & LOW, seed >> HALF
    for _ in range(10):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + INCREMENTS[0]) & LOW, (k1 + INCREMENTS[1]) & LOW
    return c0, c1, c2, c3


def log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm of normal positive float64, one IEEE operation after the other."""
    bits = x.view(np.int64)
    k = (bits - np.int64(0x3FE6A09E667F3BCD)) >> 52
    f = (bits - (k << 52)).view(np.float64) - 1.0
    s = f / (f + 2.0)
    z = s * s
    r = np.full_like(z, SERIES[0])
    for factor in SERIES[1:]:
        r = r * z + factor
    r = r * z
    h = f * 0.5 * f
    n = k.astype(np.float64)
    return n * 6.93147180369123816490e-01 - ((h - (s * (h + r) + n * 1.90821492927058770002e-10)) - f)
