"""Chooses a token from a target row: bias, penalties and cuts, then the seeded choice.

Plain decoding and verification call the same function, so a method changes neither the distribution nor, for one
seed, the text.
Order: constraint, logit bias, penalties, temperature, top-k, top-p, min-p (the order of transformers and vLLM).
The native code and ``reference`` give the same result to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from spec_core.errors import NoFiniteLogit, TargetError
from spec_core.sampling import native, reference
from spec_core.sampling.noise import DOMAIN_TOKEN
from spec_core.sampling.parameters import LOWEST, Sampling
from spec_core.sampling.reference import NoiseKey

History = tuple[Sequence[int], int, Sequence[int]]
"""Tokens that penalties read: the text before a choice, the prompt's length, and drafts after it."""
NOTHING: History = ((), 0, ())
KINDS = {torch.float32: 0, torch.float64: 1}
"""Types of rows, as numbered in the native code."""


def adjust_row(
    row: Tensor, sampling: Sampling, history: list[int], prompt: int, mask: np.ndarray | None = None
) -> Tensor:
    """The row after constraint, bias and penalties: in float64, rounded to its type after bias, after repetition, and
    at the end.

    row: [V] logits. history: all tokens before this choice, drafted prefix included. prompt: how many of them are
    the prompt. mask: [ceil(V / 32)] uint32, the tokens that a constraint allows; other logits become -inf.
    """
    if mask is not None:
        row = row.masked_fill(~unpack_mask(mask, len(row)).to(row.device), LOWEST)
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
        ids, counts = _count_tokens(history[prompt:], row.device)
        penalty = sampling.presence_penalty + sampling.frequency_penalty * counts.double()
        row[ids] = (row[ids].double() - penalty).to(row.dtype)
    return row


def unpack_mask(mask: np.ndarray, n: int) -> Tensor:
    """[n] bool: the bits of a mask; tokens beyond its last word are not allowed."""
    bits = np.unpackbits(mask.view(np.uint8), count=n, bitorder="little")
    return torch.from_numpy(bits.view(np.bool_))


def _count_tokens(tokens: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Distinct ids and their counts; rows given as embeddings (-1) are skipped. Counted on the host."""
    ids, counts = np.unique(np.array([t for t in tokens if t >= 0], np.int64), return_counts=True)
    return torch.from_numpy(ids).to(device), torch.from_numpy(counts).to(device)


def _penalise_repetition(row: Tensor, penalty: float, history: list[int]) -> None:
    ids, _ = _count_tokens(history, row.device)
    values = row[ids].double()
    row[ids] = torch.where(values > 0, values / penalty, values * penalty).to(row.dtype)


def host(row: Tensor) -> Tensor:
    """The row as both forms read it: contiguous on the host, float32 or float64."""
    if row.is_cpu and row.dtype in KINDS and row.is_contiguous() and not row.requires_grad:
        return row  # as mostly: each of the calls below takes as long as reading a small row
    return precise_rows(row).cpu().contiguous()


def precise_rows(rows: Tensor) -> Tensor:
    """The rows in float32 or float64, where they are."""
    rows = rows.detach()
    return rows if rows.dtype in KINDS else rows.float()


def support(row: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Token ids [n] that may be drawn, ascending, and their z = logits / temperature [n], float64, unnormalised log p.

    For a temperature above 0. Each cut keeps a prefix of the order by descending z, then ascending id, so the result
    does not depend on the batch.
    """
    here = host(row)
    if native.module is None:
        ids, z = reference.support(here.numpy(), sampling)
    else:
        ids, z = np.empty(len(row), np.int64), np.empty(len(row))
        count = native.module.support(*place(here), sampling._cuts, ids.ctypes.data, z.ctypes.data)
        ids, z = ids[:count], z[:count]
    return torch.from_numpy(ids).to(row.device), torch.from_numpy(z).to(row.device)


def draw_token(
    row: Tensor, sampling: Sampling, source: NoiseKey, t: int, history: History, mask: np.ndarray | None = None
) -> tuple[int, float, float]:
    """The token after a row of the target [V], its largest logit, and the difference of the two best scores.

    mask: as for ``adjust_row``.

    The argmax of z + g over the support, or of the row at temperature 0; ties go to the lowest id. If the largest logit
    is NaN or -inf, the token is meaningless: ``number`` raises for it.
    """
    here = host(row)
    if native.module is not None:
        return native.module.draw((*place(here, stride=0), sampling._terms, source, t, *history, None, *bits(mask)))
    tokens, prompt, drafted = history
    here = adjust_row(here, sampling, [*tokens, *drafted], prompt, mask)
    return reference.choose_token(here.numpy(), sampling, source, t)


def bits(masks: np.ndarray | None) -> tuple[int, int]:
    """Location of masks [W] or [rows, W] for the native code: address, words per row; zeros for None."""
    return (0, 0) if masks is None else (masks.ctypes.data, masks.shape[-1])


def choose_token(
    row: Tensor, sampling: Sampling, seed: int, t: int, stream: int = 0, domain: int = DOMAIN_TOKEN
) -> int:
    """The token at output position t. row: [V], already adjusted. Raises TargetError if there is none."""
    token, logit, _ = draw_token(row, sampling._unadjusted, (seed, stream, domain), t, NOTHING)
    return finite_choice([token], [logit])


def gap(row: Tensor, sampling: Sampling, seed: int, t: int, stream: int = 0) -> float:
    """Difference of the two best scores of ``choose_token``: the smaller, the closer the choice."""
    return draw_token(row, sampling._unadjusted, (seed, stream, DOMAIN_TOKEN), t, NOTHING)[2]


def most_likely(rows: Tensor, count: int) -> list[list[tuple[int, float]]]:
    """The ``count`` most likely tokens of every row [R, V], best first, and their probabilities within 2e-6.

    Ties go to the lowest id. In a row that is not a distribution, all tokens have probability 0.
    """
    if not rows.is_cpu:
        return likeliest_on_device(rows, count)
    here = host(rows)
    if native.module is None:
        return [reference.most_likely(row, count) for row in here.numpy()]
    address, kind, n = place(here)
    return native.module.likeliest(address, n * here.element_size(), kind, n, len(here), count)


def likeliest_on_device(rows: Tensor, count: int) -> list[list[tuple[int, float]]]:
    """``most_likely`` where the rows are, with one transfer of ``count`` numbers a row."""
    values = rows.detach().float() + 0.0  # -0.0 and 0.0 are equal
    total = values.double().logsumexp(-1, keepdim=True)
    values = values.where(total.isfinite(), 0.0)
    length, bits = values.shape[-1], values.view(torch.int32).long()
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = ordered * length - torch.arange(length, device=rows.device)
    ids = -keys.topk(min(count, length), -1).values % length
    chances = (values.gather(-1, ids).double() - total.where(total.isfinite(), math.inf)).exp()
    tokens, probabilities = torch.stack([ids.double(), chances]).tolist()
    return [list(zip(map(int, row), values, strict=True)) for row, values in zip(tokens, probabilities, strict=True)]


def place(rows: Tensor, **stride: int) -> tuple[int, ...]:
    """Location of rows for the native code: address, (stride,) type, length."""
    return rows.data_ptr(), *stride.values(), KINDS[rows.dtype], rows.shape[-1]


def largest_logits(rows: Tensor) -> tuple[list[int], list[float]]:
    """Index of the max of each row, the first of equals, and its value; NaN counts as max. rows: [n, V]."""
    if rows.is_cpu and rows.dtype in KINDS:
        values = rows.detach().numpy()  # argmax of numpy is 20 times as fast as torch's on a CPU
        ids = values.argmax(-1)
        return ids.tolist(), values[np.arange(len(ids)), ids].tolist()
    best, at = rows.max(-1)
    both = torch.stack([at.double(), best.double()]).tolist()
    return [int(i) for i in both[0]], both[1]


def finite_choice(ids: list[int], values: list[float], row: int = 0) -> int:
    """The id of one row of ``largest_logits``. Raises TargetError if its value is NaN, NoFiniteLogit if it is -inf."""
    if values[row] > LOWEST:  # False for NaN
        return ids[row]
    if math.isnan(values[row]):
        raise TargetError("the target's logits are NaN", hint="load it with another --dtype")
    raise NoFiniteLogit("no logit of the target is above -inf", hint="load it with another --dtype")
