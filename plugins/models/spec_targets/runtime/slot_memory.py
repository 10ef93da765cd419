"""The memory of a slot, and which rows of a step concern it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from spec_kernels.model.recurrence import RecurrentSlot

from spec_core import Needs, Part, TargetInfo
from spec_core.toolkit import HeldDrafts, check_held


@attrs.define(eq=False)
class SlotMemory:
    """Memory of a slot: the executor's KV cache (None without attention), and the recurrent state after
    the committed rows (None without recurrent layers). drafts: rows of drafts that a forward may follow."""

    cache: Any
    recurrent: RecurrentSlot | None = None
    drafts: HeldDrafts | None = None


def length_of(cache: Any) -> int:
    """Rows that a cache has memory for; 0 without attention."""
    return 0 if cache is None else int(cache.length)


def state_rows(info: TargetInfo, states: int) -> int:
    """Rows of the cache that take as much memory as this many recurrent states of a sequence."""
    sizes = info.recurrent
    if sizes is None or not info.row_bytes:
        return 0
    return -(-states * sizes.layers * sizes.state_bytes // info.row_bytes)


def begin_rows(parts: Iterable[Part]) -> None:
    """Drop the draft rows of earlier forwards. Raises ValueError for a part that follows rows that are void."""
    for part in parts:
        memory: SlotMemory = part.seq.slot.state
        held, memory.drafts = memory.drafts, None
        if not part.pending:
            check_held(held, part)


def hold_drafts(parts: Iterable[Part]) -> None:
    """Note the draft rows that were evaluated."""
    for part in parts:
        part.seq.slot.state.drafts = HeldDrafts(part.end, part.draft)


def draft_parents(part: Part) -> list[int]:
    """The row that each draft token and probe follows, -1: committed text."""
    return list(range(-1, part.drafted - 1)) if part.branch_parents is None else list(part.branch_parents)


def logit_rows(parts: Iterable[Part], needs: Needs) -> list[int] | None:
    """Batch rows whose logits are needed: the last pending row and the drafts of deciding parts. None means all."""
    if needs.all_logits:
        return None
    return [row for part in parts if part.decides for row in range(_first_row(part), _end(part))]


def _first_row(part: Part) -> int:
    return part.first_draft_row - 1 if part.pending else part.first_draft_row + part.held


def _end(part: Part) -> int:
    return part.first_draft_row + part.held + part.branch_rows
