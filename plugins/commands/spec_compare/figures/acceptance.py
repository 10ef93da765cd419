"""Acceptance lengths under the three names that others use, and the histogram of accepted tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs

from spec_compare.records.record import Record


@attrs.frozen
class AcceptanceLengths:
    """Tokens per step, averaged in three ways; None without steps. A turn of a conversation is a request.

    per_request: mean over requests of C / V, with C the tokens that a request emitted in V steps. token_weighted: the
    same mean weighted by C. pooled: ΣC / ΣV.
    """

    per_request: float | None
    token_weighted: float | None
    pooled: float | None


def acceptance_lengths(records: Sequence[Record]) -> AcceptanceLengths:
    """The lengths of the generation phase of these records."""
    counts = [(s.emitted, s.steps) for s in (record.draft_statistics for record in records) if s.steps]
    tokens, steps = sum(c for c, _ in counts), sum(v for _, v in counts)
    if not tokens:
        return AcceptanceLengths(None, None, None)
    return AcceptanceLengths(
        per_request=sum(c / v for c, v in counts) / len(counts),
        token_weighted=sum(c * c / v for c, v in counts) / tokens,
        pooled=tokens / steps,
    )


def uncut_length(records: Sequence[Record]) -> float | None:
    """1 + accepted tokens per draft, those after the end of a text too; None without drafts, or if not recorded."""
    steps = [record.steps for record in records if any(record.steps.drafted)]
    if not steps or not all(one.verified for one in steps):
        return None
    return 1 + sum(sum(one.verified) for one in steps) / sum(sum(map(bool, one.drafted)) for one in steps)


def acceptance_histogram(records: Sequence[Record]) -> list[int]:
    """Number of drafts with 0, 1, ... k accepted tokens; k is the longest draft. Empty if nothing was drafted."""
    longest = max((depth for record in records for depth in record.steps.depth), default=0)
    counts = Counter(
        accepted
        for record in records
        for drafted, accepted in zip(record.steps.drafted, record.steps.accepted, strict=True)
        if drafted
    )
    return [counts[n] for n in range(longest + 1)] if longest else []
