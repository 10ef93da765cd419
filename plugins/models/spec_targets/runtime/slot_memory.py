"""The memory of a slot, and which rows of a step concern it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from spec_kernels.model.executor import MemoryPlan
from spec_kernels.model.kept_rows import AHEAD, Horizon, kept_max
from spec_kernels.model.ops import Model
from spec_kernels.model.recurrence import RecurrentSlot

from spec_core import Needs, Part, Slot, TargetInfo
from spec_core.toolkit import HeldDrafts, WindowedRows, check_held

REWIND = 128
"""Rows before a window that are kept: the next turn of a text may differ a little before its end."""


@attrs.define(eq=False)
class SlotMemory:
    """Memory of a slot: the executor's KV cache (None without attention), and the recurrent state after
    the committed rows (None without recurrent layers). drafts: rows of drafts that a forward may follow."""

    cache: Any
    recurrent: RecurrentSlot | None = None
    drafts: HeldDrafts | None = None

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """Where the text can go on, see ``Slot``."""
        return getattr(self.cache, "starts", ())


def reserved_rows(info: TargetInfo, cache: Any) -> int:
    """Rows of all layers that take as much memory as a cache; 0 without attention."""
    if cache is None:
        return 0
    if info.windowed is None or not info.row_bytes:
        return int(cache.length)
    return -(-int(cache.nbytes) // info.row_bytes)


def windowed_rows(model: Model, memory: MemoryPlan, row_bytes: int) -> WindowedRows | None:
    """What layers with a window keep. row_bytes: of a row in them; 0: they keep all rows."""
    if not row_bytes:
        return None
    window = max(shape.window for shape in model.cached)
    return WindowedRows(kept_max(window, REWIND, memory.page), AHEAD, row_bytes)


def reserve_rows(slot: Slot, rows: int, horizon: Horizon | None) -> Any:
    """The cache of a slot, with room for these rows.

    horizon: what its layers with a window still need; None where they keep all rows. Raises ValueError for a position
    at which the slot cannot go on.
    """
    cache = slot.state.cache
    if cache is not None and horizon is not None:
        cache.reserve(rows, horizon)
    elif cache is not None:
        cache.reserve(rows)
    return cache


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
