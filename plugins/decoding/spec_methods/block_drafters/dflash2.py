"""DFlash2: a DFlash block with convolutions, from whose most likely tokens a selector chooses one after the other.

Around attention and feed-forward each row also reads the row before it; the selector scores the most likely tokens of a
row by the token chosen before.

Example: after ``cat`` the second row allows ``on`` and ``down``; with ``sat`` chosen first, the selector prefers
``on``.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from spec_methods.block_drafters.drafter import BlockDrafter


@attrs.define(eq=False)
class DFlash2(BlockDrafter):
    """Drafts with a DFlash2 head that was trained for the target."""

    kind: ClassVar[str] = "dflash2"
