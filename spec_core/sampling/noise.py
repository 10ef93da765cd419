"""Counter-based Gumbel noise: a pure function of (seed, output position, token id).

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). Plain decoding and every method
read the same noise, so one seed gives the same text with all of them.

A counter gives four words, for four ids that are 16 apart: id 64 b + 16 w + j has word w of counter 16 b + j.
They are the upper halves of uniforms; the lower halves are the words of the same counter with its highest bit set. A
search for the best of many tokens needs the lower halves of a few only.

Private noise has the number of the request within its run in the counter, instead of the stream: text of one request
may be drafted for the next, and must not be judged by the noise that it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spec_core.sampling import native
from spec_core.sampling.arithmetic import natural_log

Words = np.ndarray | np.uint64
Keys = Sequence[tuple[np.uint64, np.uint64]]

MASK = 0xFFFFFFFF
ZERO, LOW, HALF = np.uint64(0), np.uint64(MASK), np.uint64(32)
FIRST, SECOND = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOWER = np.uint64(1 << 31)
"""Added to the first word of a counter for the lower halves."""
DOMAIN_TOKEN = 0
"""Domain word of token noise, shared by plain decoding, the default rule and drafters."""
DOMAIN_COIN = 1
"""Domain word of private noise for a rule's coins."""
DOMAIN_CHOICE = 3
"""Domain word of private noise for the core's choice for undecided sequences."""
DOMAIN_KEY = 4
"""Domain word of private noise for the key of the other two."""
DOMAIN_DRAFT = 1 << 31
"""First domain word of drafters' noise under a rule with private noise; every node of a draft has its own."""
BRANCHES = 1 << 16
"""Max nodes of one depth with distinct private noise."""


@lru_cache(maxsize=1024)
def round_keys(seed: int) -> list[tuple[np.uint64, np.uint64]]:
    """The two key words of every round, from a 64-bit seed."""
    low, high = seed & MASK, seed >> 32 & MASK
    first, second = INCREMENTS
    return [(np.uint64((low + i * first) & MASK), np.uint64((high + i * second) & MASK)) for i in range(ROUNDS)]


def philox(counter: Sequence[Words], keys: Keys) -> tuple[Any, ...]:
    """Four words of a counter -> four random words, uint64 below 2**32; words that are arrays broadcast.

    A word that is equal in all counters stays a scalar until the rounds have mixed an array into it.
    """
    c0, c1, c2, c3 = counter
    for k0, k1 in keys:
        p0, p1 = c0 * FIRST, c2 * SECOND
        c0, c1, c2, c3 = (p1 >> HALF) ^ (c1 ^ k0), p1 & LOW, (p0 >> HALF) ^ (c3 ^ k1), p0 & LOW
    return c0, c1, c2, c3


@lru_cache(maxsize=1024)
def private_key(seed: int, stream: int) -> int:
    """The 64-bit key of a request's private noise. It includes the stream; the counter holds the request number."""
    first, second, _, _ = philox((np.uint64(stream & MASK), ZERO, ZERO, np.uint64(DOMAIN_KEY)), round_keys(seed))
    return int(first) | int(second) << 32


def draft_domain(i: int, branch: int) -> int:
    """Domain word of a drafter's private noise for the i-th token of a draft, below a node of its depth."""
    if not 0 <= i < DOMAIN_DRAFT // BRANCHES or not 0 <= branch < BRANCHES:
        raise ValueError(f"private noise of token {i}, branch {branch}: at most {BRANCHES} nodes of a depth")
    return DOMAIN_DRAFT + i * BRANCHES + branch


def uniform(seed: int, t: int, ids: int | np.ndarray, stream: int = 0, domain: int = DOMAIN_TOKEN) -> np.ndarray:
    """Uniforms in (0, 1), float64, one per id or for all ids below ``ids``; exact: 2**-53 <= u <= 1 - 2**-53."""
    rest = tuple(np.uint64(word & MASK) for word in (t, stream, domain))
    words = partial(_all_words, ids) if isinstance(ids, int) else partial(_words, ids)
    high, low = (words(half, rest, round_keys(seed)) for half in (ZERO, LOWER))
    whole = high << np.uint64(20) | low >> np.uint64(12)
    return (whole.astype(np.float64) + 0.5) * 2.0**-52


def _words(ids: np.ndarray, half: np.uint64, rest: tuple[Words, ...], keys: Keys) -> np.ndarray:
    ids = ids.astype(np.uint64)
    counter = ids >> np.uint64(6) << np.uint64(4) | ids & np.uint64(15) | half
    return np.choose((ids >> np.uint64(4) & np.uint64(3)).astype(np.intp), philox((counter, *rest), keys))


def _all_words(count: int, half: np.uint64, rest: tuple[Words, ...], keys: Keys) -> np.ndarray:
    """``_words`` of all ids below ``count``; every counter is computed once."""
    counter = np.arange(-(-count // 64) * 16, dtype=np.uint64) | half
    words = np.stack(philox((counter, *rest), keys))
    return words.reshape(4, -1, 16).swapaxes(0, 1).reshape(-1)[:count]


def gumbel(seed: int, t: int, ids: int | Tensor, stream: int = 0, domain: int = DOMAIN_TOKEN) -> Tensor:
    """Gumbel(0, 1) noise, float64 on the CPU, for token ids [n] or for all ids below ``ids``."""
    host = ids if isinstance(ids, int) else ids.to("cpu", torch.int64).contiguous().numpy()
    if native.module is None:
        return torch.from_numpy(noise(seed, t, host, stream, domain))
    count, at = (host, 0) if isinstance(host, int) else (len(host), host.ctypes.data)
    values = np.empty(count)
    native.module.gumbel(seed, t, stream, domain, at, len(values), values.ctypes.data)
    return torch.from_numpy(values)


def noise(seed: int, t: int, ids: int | np.ndarray, stream: int = 0, domain: int = DOMAIN_TOKEN) -> np.ndarray:
    """The reference of ``gumbel``, in numpy."""
    return -natural_log(-natural_log(uniform(seed, t, ids, stream, domain)))
