"""Rows of drafts that stay in a target's memory, for a forward that follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from spec_core.contract.splice import explicit_parents
from spec_core.contract.values import Draft

if TYPE_CHECKING:
    from spec_core.contract.batch import Part


@attrs.frozen
class HeldDrafts:
    """What a target keeps of the last forward of a sequence: the end of its committed rows, and the draft after them.

    A target sets it with every forward of a sequence, and drops it before each of them, with every other call that
    writes rows of the sequence or moves them, and where a slot is opened or copied.
    """

    end: int
    draft: Draft | None


def is_prefix(count: int, short: Draft | None, long: Draft) -> bool:
    """Whether the first ``count`` tokens of both drafts, and their parents, are the same."""
    if count == 0:
        return True
    if short is None or len(short) < count or short.ids[:count] != long.ids[:count]:
        return False
    return explicit_parents(short)[:count] == explicit_parents(long)[:count]


def check_held(held: HeldDrafts | None, part: Part) -> None:
    """Raise ValueError if the rows that a part follows are no longer those in memory."""
    if part.pending:
        return
    if part.draft is None:
        raise ValueError("a part has neither pending rows nor a draft")
    if held is None or held.end != part.start or not is_prefix(part.held, held.draft, part.draft):
        raise ValueError(
            f"the {part.held} draft rows that a forward follows are void: rows of the sequence were written since"
        )
