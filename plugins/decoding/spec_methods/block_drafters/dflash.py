"""DFlash (z-lab, block diffusion): every row of a block predicts its token alone.

Example: with blocks of 4 the forward reads ``cat`` and three mask tokens after it, attends to the features of
all earlier tokens, and predicts all three at once: ``sat``, ``on``, ``the``.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from spec_methods.block_drafters.drafter import BlockDrafter


@attrs.define(eq=False)
class DFlash(BlockDrafter):
    """Drafts with a DFlash head that was trained for the target."""

    kind: ClassVar[str] = "dflash"
