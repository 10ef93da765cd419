"""The two distributions that a rule for sampled text compares: the target's, and the one a draft was drawn from."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft
from spec_core.contract.verified_step import VerifiedStep
from spec_core.sampling.choose import adjust_row, finite_choice, host, largest_logits, precise_rows, support
from spec_core.sampling.parameters import LOWEST


def target_distribution(step: VerifiedStep, seq: Sequence, row: int, logits: Tensor | None = None) -> np.ndarray:
    """[V] float64: p of a row of ``step.logits(seq)`` under the request's sampling parameters, as in plain decoding.

    Constraint, bias, penalties over text and drafted prefix, temperature, cuts. For requests with a temperature above
    0. Raises TargetError for rows of NaN, or without a finite logit.

    :param logits: [1+K, V] the sequence's logits on the host, as ``rows_on_host`` copies them for a whole step. Without
        them a row on a device is copied alone, which waits for the device once per row.
    """
    p, value = _row_distribution(step, seq, row, step.logits(seq) if logits is None else logits)
    finite_choice([0], [value])
    return p.numpy()


def _row_distribution(step: VerifiedStep, seq: Sequence, row: int, rows: Tensor) -> tuple[Tensor, float]:
    """p [V] float64 on the host, NaN where no logit is finite, and the largest logit. rows: [1+K, V]"""
    logits = _adjust(step, seq, row, host(rows[row]))
    (best,), (value,) = largest_logits(logits[None])
    if not value > LOWEST:  # also NaN
        return torch.full((len(logits),), math.nan, dtype=torch.float64), value
    if math.isinf(value):  # an infinite logit takes all probability
        return torch.from_numpy(point_mass(best, len(logits))), value
    ids, z = support(logits, seq.sampling)
    p = torch.softmax(z, -1)
    if seq.sampling.truncates:
        p = torch.zeros(len(logits), dtype=p.dtype).scatter_(0, ids, p)
    return p, value


def target_distributions(step: VerifiedStep, seq: Sequence, logits: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """([1+K, V], [1+K]) float64 on the device of the logits: p of all rows, and the largest logit of each.

    As ``target_distribution``, but nothing is read on the host: rows of NaN, or without a finite logit, are NaN.

    :param logits: [1+K, V] the sequence's logits on the host, as ``rows_on_host`` copies them: needed for requests with
        top-k, top-p or min-p.
    """
    rows = precise_rows(step.logits(seq))
    if seq.sampling.truncates:
        assert logits is not None
        pairs = [_row_distribution(step, seq, row, logits) for row in range(len(logits))]
        p = torch.stack([p for p, _ in pairs]).to(rows.device)
        return p, torch.tensor([value for _, value in pairs], dtype=torch.float64, device=rows.device)
    if seq.sampling.adjusts or step.part(seq).masks is not None:
        rows = torch.stack([_adjust(step, seq, i, row) for i, row in enumerate(rows)])
    values, at = rows.max(-1, keepdim=True)
    z = (rows.double() - values) / seq.sampling.temperature
    infinite = values.isposinf()  # an infinite logit takes all probability
    peak = torch.where(infinite, 0.0, z.gather(-1, at))
    z = z.masked_fill_(infinite, LOWEST).scatter_(-1, at, peak)
    return torch.softmax(z, -1), values[:, 0].double()


def _adjust(step: VerifiedStep, seq: Sequence, i: int, row: Tensor) -> Tensor:
    """Row ``i`` of a sequence after constraint, bias and penalties, where it is."""
    return adjust_row(row, seq.sampling, step.history(seq, i), seq.prompt_len, step.mask(seq, i))


def draft_distribution(draft: Draft, j: int, vocab: int) -> np.ndarray:
    """[V] float64: q that draft ``j`` was drawn from; a token that was not drawn has probability 1.

    Rows of ``probs`` have at best float32 precision, so they are normalised. Raises ValueError for the
    proposal ``unknown``, which has no distribution.
    """
    if draft.proposal == "deterministic":
        return point_mass(draft.ids[j], vocab)
    if draft.probs is None:
        raise _without_probs(draft)
    row = draft.probs[j].double().cpu().numpy()
    return row / row.sum()


def draft_distributions(draft: Draft, p: Tensor) -> Tensor:
    """[K, V] float64 on the device of ``p`` [.., V]: ``draft_distribution`` of all tokens."""
    if draft.proposal == "deterministic":
        return p.new_zeros(len(draft), p.shape[-1]).scatter_(1, draft.tokens.to(p.device)[:, None], 1.0)
    if draft.probs is None:
        raise _without_probs(draft)
    rows = draft.probs.detach().to(p.device).double()
    return rows / rows.sum(-1, keepdim=True)


def _without_probs(draft: Draft) -> ValueError:
    return ValueError(f"a draft of proposal {draft.proposal!r} has no probs: leave it out of Compat(judges=...)")


def point_mass(token: int, vocab: int) -> np.ndarray:
    """[V] float64: probability 1 on one token."""
    p = np.zeros(vocab)
    p[token] = 1.0
    return p
