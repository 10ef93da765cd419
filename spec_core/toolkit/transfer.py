"""Rows on the host: one copy from a device for all rows that a rule reads in a step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft
from spec_core.contract.verified_step import VerifiedStep


def rows_on_host(step: VerifiedStep, seqs: Iterable[Sequence]) -> dict[Sequence, Tensor]:
    """{sequence: its logits [1+K, V] on the host}, as ``step.logits`` has them. One copy for all these sequences."""
    seqs = list(seqs)
    return dict(zip(seqs, copy_to_host([step.logits(seq) for seq in seqs]), strict=True))


def drafts_on_host(step: VerifiedStep, seqs: Iterable[Sequence]) -> dict[Sequence, Draft | None]:
    """{sequence: its draft, with ``probs`` on the host}. One copy for all these sequences."""
    drafts = {seq: step.part(seq).draft for seq in seqs}
    drawn = [
        (seq, draft, draft.probs) for seq, draft in drafts.items() if draft is not None and draft.probs is not None
    ]
    rows = copy_to_host([own_rows for _, _, own_rows in drawn])
    for (seq, draft, own_rows), probs in zip(drawn, rows, strict=True):
        if probs is not own_rows:
            drafts[seq] = Draft(draft.ids, draft.proposal, probs, draft.parents, draft.confidence)
    return drafts


def copy_to_host(tensors: list[Tensor]) -> list[Tensor]:
    """Copies of rows [n, V] on the host. Rows on a device are joined there and copied together."""
    away = [tensor.detach() for tensor in tensors if not tensor.is_cpu]
    if not away:
        return tensors
    copies = iter(torch.cat(away).cpu().split([len(tensor) for tensor in away]))
    return [tensor if tensor.is_cpu else next(copies) for tensor in tensors]
