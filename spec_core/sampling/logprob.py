"""Log-probabilities of the chosen token and of the most likely ones."""

from __future__ import annotations

import math

import attrs
import numpy as np
from torch import Tensor

from spec_core.sampling import native, reference
from spec_core.sampling.arithmetic import fine_bits, natural_log
from spec_core.sampling.choose import host, most_likely, place


@attrs.frozen
class Logprob:
    """log p of the chosen token under the target's row, and the most likely tokens with theirs."""

    value: float
    top: tuple[tuple[int, float], ...] = ()


def logprob(row: Tensor, token: int, best: int) -> Logprob:
    """Log-probability from the verified row, before temperature and penalties, within 1e-9. row: [V]."""
    here = host(row)
    values = here.numpy()
    first, _, total = reference.mass(values) if native.module is None else native.module.mass(*place(here))
    whole = float(natural_log(np.array([math.ldexp(total, -fine_bits(len(values)))]))[0])
    chance = lambda i: float(values[i]) - float(values[first]) - whole
    return Logprob(chance(token), tuple((i, chance(i)) for i, _ in most_likely(here[None], best)[0]))
