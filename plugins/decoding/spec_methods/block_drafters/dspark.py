"""DSpark: a DFlash block whose rows are corrected by the token before each, and whose head says how sure it is.

A Markov matrix of low rank adds to every row what usually follows the token drafted before it, from left to right; the
confidence head estimates the chance that this token is accepted.

Example: the rows of a block after ``cat`` predict ``sat`` and ``the`` (both are usual two tokens later). With ``sat``
drafted first, the Markov matrix adds to ``on`` in the second row: the draft is ``sat on``.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from spec_methods.block_drafters.drafter import BlockDrafter


@attrs.define(eq=False)
class DSpark(BlockDrafter):
    """Drafts with a DSpark head that was trained for the target."""

    kind: ClassVar[str] = "dspark"
