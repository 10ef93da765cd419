"""From a target row to a token: what the user asked for, and the seeded choice.

Plain decoding and verification call the same function, so a method changes neither the distribution nor, for a
seed, the text.
Order: logit bias, penalties, temperature, top-k, top-p, min-p (the order of transformers and vLLM).
What is done here is done natively or by ``reference``, with the same result to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from spec_core.errors import TargetError
from spec_core.sampling import native, reference
from spec_core.sampling.noise import DOMAIN_TOKEN
from spec_core.sampling.parameters import LOWEST, Sampling
from spec_core.sampling.reference import Source

History = tuple[Sequence[int], int, Sequence[int]]
"""What penalties look at: text before a choice, how much of it is the prompt, and drafts after it."""
NOTHING: History = ((), 0, ())
KINDS = {torch.float32: 0, torch.float64: 1}
"""Types of rows, as the native form numbers them."""


def adjust(row: Tensor, sampling: Sampling, history: list[int], prompt: int) -> Tensor:
    """The row after bias and penalties: in float64, rounded to its type after bias, repetition, and both others.

    row: [V] logits. history: all tokens before this choice, the drafted prefix included. prompt: how many of them are
    the prompt.
    """
    if not sampling.adjusts:
        return row
    row = row.clone()
    if sampling.logit_bias:
        ids = torch.tensor(list(sampling.logit_bias), device=row.device)
        bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float64, device=row.device)
        row[ids] = (row[ids].double() + bias).to(row.dtype)
    if sampling.repetition_penalty != 1.0:
        _penalise_repetition(row, sampling.repetition_penalty, history)
    if sampling.presence_penalty or sampling.frequency_penalty:
        ids, counts = _counted(history[prompt:], row.device)
        penalty = sampling.presence_penalty + sampling.frequency_penalty * counts.double()
        row[ids] = (row[ids].double() - penalty).to(row.dtype)
    return row


def _counted(tokens: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Distinct ids and how often each occurs; rows given as embeddings (-1) are no tokens."""
    ids = torch.tensor([t for t in tokens if t >= 0], dtype=torch.int64, device=device)
    return torch.unique(ids, return_counts=True)


def _penalise_repetition(row: Tensor, penalty: float, history: list[int]) -> None:
    ids, _ = _counted(history, row.device)
    values = row[ids].double()
    row[ids] = torch.where(values > 0, values / penalty, values * penalty).to(row.dtype)


def host(row: Tensor) -> Tensor:
    """The row as the two forms read it: on the host, float32 or float64, in one piece."""
    row = row.detach()
    return (row if row.dtype in KINDS else row.float()).cpu().contiguous()


def support(row: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Token ids [n] that may be drawn, ascending, and their z = logits / temperature [n], float64, unnormalised log p.

    For a temperature above 0. Each cut keeps a beginning of the order by descending z, then ascending id, so none
    depends on the batch.
    """
    here = host(row)
    if native.module is None:
        ids, z = reference.support(here.numpy(), sampling)
    else:
        ids, z = np.empty(len(row), np.int64), np.empty(len(row))
        count = native.module.support(*place(here), sampling._cuts, ids.ctypes.data, z.ctypes.data)
        ids, z = ids[:count], z[:count]
    return torch.from_numpy(ids).to(row.device), torch.from_numpy(z).to(row.device)


def drawn(row: Tensor, sampling: Sampling, source: Source, t: int, history: History) -> tuple[int, float, float]:
    """The token after a row of the target [V], its largest logit, and the distance of the two best scores.

    The argmax of z + g over the support, at temperature 0 of the row; of equals the lowest id. Where the largest logit
    is no number, or not above -inf, the token means nothing: ``number`` says so.
    """
    here = host(row)
    if native.module is not None:
        return native.module.draw((*place(here, stride=0), sampling._terms, source, t, *history, None))
    tokens, prompt, drafted = history
    here = adjust(here, sampling, [*tokens, *drafted], prompt)
    return reference.choose(here.numpy(), sampling, source, t)


def choose(row: Tensor, sampling: Sampling, seed: int, t: int, stream: int = 0, domain: int = DOMAIN_TOKEN) -> int:
    """The token at output position t. row: [V], adjusted already. Raises TargetError where there is none."""
    token, logit, _ = drawn(row, sampling._unadjusted, (seed, stream, domain), t, NOTHING)
    return number([token], [logit])


def gap(row: Tensor, sampling: Sampling, seed: int, t: int, stream: int = 0) -> float:
    """Distance of the two best scores of ``choose``: how near the choice was to going the other way."""
    return drawn(row, sampling._unadjusted, (seed, stream, DOMAIN_TOKEN), t, NOTHING)[2]


def likeliest(rows: Tensor, count: int) -> list[list[tuple[int, float]]]:
    """The ``count`` most likely tokens of every row [R, V], best first, and their probabilities within 2e-6.

    Of equals the lowest id comes first. A row that is no distribution has tokens of probability 0.
    """
    here = host(rows)
    if native.module is None:
        return [reference.likeliest(row, count) for row in here.numpy()]
    address, kind, n = place(here)
    return native.module.likeliest(address, n * here.element_size(), kind, n, len(here), count)


def place(rows: Tensor, **stride: int) -> tuple[int, ...]:
    """Where rows lie, for the native form: address, (stride,) type, length."""
    return rows.data_ptr(), *stride.values(), KINDS[rows.dtype], rows.shape[-1]


def largest(rows: Tensor) -> tuple[list[int], list[float]]:
    """Where the largest of each row is, the first of equals, and its value; NaN counts as largest. rows: [n, V]."""
    if rows.is_cpu and rows.dtype in KINDS:
        values = rows.detach().numpy()  # its argmax is twenty times as fast as torch's on a CPU
        ids = values.argmax(-1)
        return ids.tolist(), values[np.arange(len(ids)), ids].tolist()
    best, at = rows.max(-1)
    both = torch.stack([at.double(), best.double()]).tolist()
    return [int(i) for i in both[0]], both[1]


def number(ids: list[int], values: list[float], row: int = 0) -> int:
    """The id of one row of ``largest``. Raises TargetError where its value is NaN, or no token is left."""
    if values[row] > LOWEST:  # NaN is not
        return ids[row]
    if math.isnan(values[row]):
        raise TargetError("the target's logits are not numbers (NaN)", hint="load it with another --dtype")
    raise TargetError("every token is banned: no logit is above -inf", hint="leave a token without that bias")
