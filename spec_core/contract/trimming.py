"""Shortens a proposed draft as its request asks: no token of low confidence, no draft below its minimum length."""

from __future__ import annotations

from spec_core.contract.values import Draft


def shorten_draft(draft: Draft, confidence_min: float, draft_min: int) -> Draft | None:
    """The draft without tokens below ``confidence_min`` and their descendants; None if it is too short then.

    A draft without confidences is not cut.
    """
    if confidence_min > 0 and draft.confidence is not None:
        draft = _confident(draft, confidence_min)
    return draft if len(draft) and draft.depth >= draft_min else None


def _confident(draft: Draft, confidence_min: float) -> Draft:
    kept: dict[int, int] = {-1: -1}
    parents = draft.parents or range(-1, len(draft) - 1)
    for i, (parent, chance) in enumerate(zip(parents, draft.confidence or (), strict=True)):
        if parent in kept and chance >= confidence_min:
            kept[i] = len(kept) - 1
    del kept[-1]
    return draft if len(kept) == len(draft) else _part(draft, kept)


def _part(draft: Draft, kept: dict[int, int]) -> Draft:
    """Tokens of these indices, in their order. kept: {old index: new index}, closed under parents."""
    indices = list(kept)
    return Draft(
        [draft.ids[i] for i in indices],
        draft.proposal,
        None if draft.probs is None else draft.probs[indices],
        None if draft.parents is None else [kept.get(draft.parents[i], -1) for i in indices],
        None if draft.confidence is None else [draft.confidence[i] for i in indices],
    )
