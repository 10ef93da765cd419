"""A recorded draft under other limits: what is left of it, and whether the record says what would happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

import attrs

from spec_compare.replay.recorded import RecordedPart
from spec_core import Draft, Limit, Piece

Limits = Mapping[str, Limit] | None
"""Of a plan, by method; None without a plan."""


@attrs.frozen(eq=False)
class CutDraft:
    """draft, pieces, path: what is left of the recorded ones; path are the accepted tokens that are left.

    censored: the choice allows tokens that the record does not have: what is left ends where the record ends.
    """

    draft: Draft | None
    pieces: list[Piece]
    path: tuple[int, ...]
    censored: bool


@attrs.frozen(eq=False)
class RecordedPiece:
    """A method's tokens: the first one's index, their number, and the token that the first follows, -1 for text."""

    source: str
    first: int
    count: int
    leaf: int


def cut_draft(part: RecordedPart, limits: Limits, drafters: Iterable[str]) -> CutDraft:
    """The recorded draft as these limits allow it."""
    recorded, drafters = list(pieces_of(part)), list(drafters)
    same = is_recorded(part, limits, drafters)
    kept = [True] * part.drafted if same else _kept_tokens(part, recorded, limits)
    draft, index = _remaining_draft(part, kept)
    pieces = [piece for one in recorded if (piece := _piece(one, part, kept, index)) is not None]
    path = tuple(index[i] for i in _until_cut(part.uncut, kept))
    return CutDraft(draft, pieces, path, not same and _is_censored(part, recorded, limits, kept, drafters))


def is_recorded(part: RecordedPart, limits: Limits, drafters: Iterable[str]) -> bool:
    """Whether these limits allow each method what it was allowed when the step was recorded."""
    return all(
        allowed_length(part, limits, name) == allowed_length(part, part.limits, name)
        and price(limits, name) == price(part.limits, name)
        for name in drafters
    )


def pieces_of(part: RecordedPart) -> Iterator[RecordedPiece]:
    """The recorded pieces of a draft."""
    for first, count in zip(accumulate(part.pieces, initial=0), part.pieces, strict=False):
        yield RecordedPiece(part.sources[first], first, count, parent(part, first))


def parent(part: RecordedPart, i: int) -> int:
    """The drafted token that token i follows, -1 for the text."""
    assert part.draft is not None
    return i - 1 if part.draft.parents is None else part.draft.parents[i]


def allowed_length(part: RecordedPart, limits: Limits, source: str) -> int:
    """Longest path that this method may add."""
    if limits is None:
        return part.budget
    limit = limits.get(source, Limit(0))
    return part.budget if limit.length is None else min(part.budget, limit.length)


def price(limits: Limits, source: str) -> float:
    """Min chance of a path of this method; 0 where the plan has none."""
    limit = None if limits is None else limits.get(source)
    return 0.0 if limit is None or limit.price is None else limit.price


def _kept_tokens(part: RecordedPart, pieces: Iterable[RecordedPiece], limits: Limits) -> list[bool]:
    """Mask of the draft's tokens that are left. A price ends a path at the first token whose chance is below it."""
    draft = part.draft
    kept: list[bool] = []
    chances: list[float] = []
    for piece in pieces:
        own, floor = allowed_length(part, limits, piece.source), price(limits, piece.source)
        if floor == price(part.limits, piece.source):
            floor = 0.0  # the method stopped by it when it was recorded
        root = draft.depths[piece.leaf] if piece.leaf >= 0 else 0
        for i in range(piece.first, piece.first + piece.count):
            before, depth = parent(part, i), draft.depths[i]
            sure = 1.0 if draft.confidence is None else draft.confidence[i]
            chances.append(sure * (chances[before] if before >= 0 else 1.0))
            fits = depth - root <= own and chances[i] >= floor
            kept.append(fits and (before < 0 or kept[before]))
    return kept


def _remaining_draft(part: RecordedPart, kept: list[bool]) -> tuple[Draft | None, dict[int, int]]:
    """The draft of the tokens that are left, and their new indices."""
    index = {old: new for new, old in enumerate(i for i, stays in enumerate(kept) if stays)}
    index[-1] = -1
    draft = part.draft
    if draft is None or not any(kept):
        return None, index
    ids = [draft.ids[i] for i in index if i >= 0]
    parents = None if draft.parents is None else [index[draft.parents[i]] for i in index if i >= 0]
    confidence = None if draft.confidence is None else [draft.confidence[i] for i in index if i >= 0]
    return Draft(ids, None, None, parents, confidence), index


def _piece(piece: RecordedPiece, part: RecordedPart, kept: list[bool], index: Mapping[int, int]) -> Piece | None:
    own = [i for i in range(piece.first, piece.first + piece.count) if kept[i]]
    if not own:
        return None
    first, draft = index[own[0]], part.draft
    parents = None if draft.parents is None else [max(-1, index[draft.parents[i]] - first) for i in own]
    confidence = None if draft.confidence is None else [draft.confidence[i] for i in own]
    return Piece(
        piece.source, Draft([draft.ids[i] for i in own], None, None, parents, confidence), first, index[piece.leaf]
    )


def _until_cut(path: Iterable[int], kept: list[bool]) -> Iterator[int]:
    for i in path:
        if not kept[i]:
            return
        yield i


def _is_censored(
    part: RecordedPart, pieces: list[RecordedPiece], limits: Limits, kept: list[bool], drafters: Iterable[str]
) -> bool:
    """Whether a method may draft more than it was allowed to, or is asked where another had drafted."""
    if pieces and not any(kept) and any(allowed_length(part, limits, name) for name in drafters):
        return True
    return any(_may_draft_more(part, pieces, name, limits) for name in drafters)


def _may_draft_more(part: RecordedPart, pieces: list[RecordedPiece], name: str, limits: Limits) -> bool:
    """Whether a method that made use of all it was allowed may draft more now."""
    own, own_then = allowed_length(part, limits, name), allowed_length(part, part.limits, name)
    used = max((_own_depth(part, piece) for piece in pieces if piece.source == name), default=0)
    return (own > own_then and used >= own_then) or (used > 0 and price(limits, name) < price(part.limits, name))


def _own_depth(part: RecordedPart, piece: RecordedPiece) -> int:
    """Length of the longest path of a piece."""
    depths = part.draft.depths
    root = depths[piece.leaf] if piece.leaf >= 0 else 0
    return max(depths[piece.first : piece.first + piece.count]) - root
