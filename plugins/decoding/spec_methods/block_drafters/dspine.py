"""DSpine: a DFlash block in which each row reads, after every layer, what the row before it expects to predict.

The last of these messages is made again by the token drafted before, and decides among a row's most likely tokens.

Example: the second row of a block after ``cat`` allows ``on`` and ``down``. With ``sat`` drafted first, the message of
``sat`` moves its state, and ``on`` scores best.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from spec_methods.block_drafters.drafter import BlockDrafter


@attrs.define(eq=False)
class DSpine(BlockDrafter):
    """Drafts with a DSpine head that was trained for the target."""

    kind: ClassVar[str] = "dspine"
