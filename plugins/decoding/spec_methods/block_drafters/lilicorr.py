"""LiLiCorr: a DFlash block, over whose most likely tokens two small layers choose a path.

Example: the rows of a block after ``cat`` allow ``sat`` and ``lay``, then ``on`` and ``down``. All four are read
together: the pair ``lay down`` scores better than the pair ``sat on``.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from spec_methods.block_drafters.drafter import BlockDrafter


@attrs.define(eq=False)
class LiLiCorr(BlockDrafter):
    """Drafts with a LiLiCorr head that was trained for the target."""

    kind: ClassVar[str] = "lilicorr"
