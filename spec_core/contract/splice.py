"""One draft of several methods: each extends what those before it proposed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spec_core.contract.kinds import Kind
from spec_core.contract.values import Draft


def merge_kinds(one: Kind, other: Kind) -> Kind:
    """Kind of proposal of a draft that has tokens of both."""
    if one == other:
        return one
    return "unknown" if "unknown" in (one, other) else "mixed"


def join_drafts(whole: Draft, more: Draft, leaf: int) -> Draft:
    """``whole``, and after its token ``leaf`` the tokens of ``more``: the indices of ``whole``, then of ``more``."""
    proposal = merge_kinds(whole.proposal, more.proposal)
    confidence = None
    if whole.confidence is not None and more.confidence is not None:
        confidence = whole.confidence + more.confidence
    return Draft(whole.ids + more.ids, proposal, _probs(whole, more, proposal), _parents(whole, more, leaf), confidence)


def leaves(draft: Draft) -> list[int]:
    """Indices of tokens that no drafted token follows."""
    if draft.parents is None:
        return [len(draft) - 1]
    inner = set(draft.parents)
    return [i for i in range(len(draft)) if i not in inner]


def likely_first(draft: Draft) -> list[int]:
    """The leaves of a draft, by the joint confidence of their paths; in their order where the draft has none."""
    ends = leaves(draft)
    chance = draft.confidence
    if len(ends) < 2 or chance is None:
        return ends
    return sorted(ends, key=lambda leaf: -math.prod(chance[i] for i in draft.ancestry(leaf)))


def _parents(whole: Draft, more: Draft, leaf: int) -> list[int] | None:
    n = len(whole)
    if whole.parents is None and more.parents is None and leaf == n - 1:
        return None
    appended = (leaf if p < 0 else n + p for p in explicit_parents(more))
    return [*explicit_parents(whole), *appended]


def explicit_parents(draft: Draft) -> tuple[int, ...]:
    """Parents of all tokens, of a chain too."""
    return tuple(range(-1, len(draft) - 1)) if draft.parents is None else draft.parents


def _probs(whole: Draft, more: Draft, kind: Kind) -> Tensor | None:
    """Rows of both where tokens were drawn; the row of a token that was not drawn is a point mass."""
    drawn = [d.probs for d in (whole, more) if d.probs is not None]
    if not drawn or kind == "unknown":
        return None
    return torch.cat([_rows(d, drawn[0]) for d in (whole, more)])


def _rows(draft: Draft, like: Tensor) -> Tensor:
    if draft.probs is not None:
        return draft.probs
    rows = torch.zeros(len(draft), like.shape[1], dtype=like.dtype, device=like.device)
    return rows.scatter_(1, draft.tokens.to(like.device)[:, None], 1.0)
