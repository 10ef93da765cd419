"""Counter-based Gumbel noise: a pure function of (seed, output position, token id).

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). Plain decoding and every method
read the same noise, so the same seed gives the same text with all of them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

MASK = 0xFFFFFFFF
MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
DOMAIN_TOKEN = 0
"""Domain word of token noise; other values are free for private coins."""
DOMAIN_DRAFT = 1 << 31
"""From here on: noise of drafters under a rule with private noise, a domain of its own for every round."""


@lru_cache(maxsize=1024)
def round_keys(seed: int) -> np.ndarray:
    """[rounds, 2, 1] uint64: the key words of every round; the seed has 64 bits."""
    low, high = seed & MASK, seed >> 32 & MASK
    keys = [[(low + i * INCREMENTS[0]) & MASK, (high + i * INCREMENTS[1]) & MASK] for i in range(ROUNDS)]
    return np.array(keys, dtype=np.uint64)[:, :, None]


def philox(counters: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """counters [4, n] uint64, words below 2**32 -> random words [4, n].

    Words 0 and 2 are multiplied, words 1 and 3 are mixed in: kept as two pairs, a round is five array operations.
    """
    even, odd = counters[0::2], counters[1::2]
    for key in keys:
        product = even * MULTIPLIERS
        even = (product >> np.uint64(32))[::-1] ^ odd
        even ^= key
        odd = (product & np.uint64(MASK))[::-1]
    return np.stack([even[0], odd[0], even[1], odd[1]])


def uniform(seed: int, t: int, ids: np.ndarray, stream: int = 0, domain: int = DOMAIN_TOKEN) -> np.ndarray:
    """Uniforms in (0, 1), float64, one per id; exact: 2**-53 <= u <= 1 - 2**-53."""
    counters = np.empty((4, len(ids)), dtype=np.uint64)
    counters[0] = ids
    counters[1:] = np.array([[t & MASK], [stream & MASK], [domain]], dtype=np.uint64)
    words = philox(counters, round_keys(seed))
    high, low = (words[:2] >> np.uint64(6)).astype(np.float64)
    return (high * 2.0**26 + low + 0.5) * 2.0**-52


def gumbel(seed: int, t: int, ids: int | Tensor, stream: int = 0, domain: int = DOMAIN_TOKEN) -> Tensor:
    """Gumbel(0, 1) noise, float64 on the CPU, for token ids [n] or for all ids below ``ids``."""
    host = np.arange(ids) if isinstance(ids, int) else ids.cpu().numpy()
    return torch.from_numpy(-np.log(-np.log(uniform(seed, t, host, stream, domain))))
