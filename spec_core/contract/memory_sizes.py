"""Sizes of what a target keeps of a sequence besides rows of attention in layers that keep them all."""

from __future__ import annotations

import attrs


@attrs.frozen
class RecurrentSizes:
    """Recurrent layers: their number, bytes of one layer's state, and bytes of its record of a token."""

    layers: int
    state_bytes: int
    record_bytes: int


@attrs.frozen
class WindowedRows:
    """Layers with a window: max rows of a sequence that they keep besides the rows of its largest step, min rows that
    count for a step, and bytes of a row in these layers."""

    rows: int
    step: int
    row_bytes: int
