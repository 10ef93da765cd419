"""The beginning of a chain: after committed text, or after the most likely leaf of another method's draft.

For drafters with a model or a layer of their own. They evaluate the drafted tokens before the leaf, then draft on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft
from spec_core.contract.verified_step import RollbackStep
from spec_core.toolkit.acceptance import AcceptanceEstimate

BRANCH = 1 << 15
"""First branch of private noise after the leaves of a tree; the nodes of one depth are fewer."""


@attrs.frozen
class BranchPoint:
    """leaf: index in the whole draft of the token that the chain follows, -1 for committed text.

    path: the drafted tokens down to the leaf. chance: that all of them are accepted, by the confidence of those who
    drafted them; None where they gave none. branch: of the chain's noise, as in ``step.noise``.
    """

    leaf: int = -1
    path: tuple[int, ...] = ()
    chance: float | None = 1.0
    branch: int = 0

    @classmethod
    def behind(cls, draft: Draft, leaf: int) -> BranchPoint:
        above = draft.ancestry(leaf)
        chance = None if draft.confidence is None else math.prod(draft.confidence[i] for i in above)
        branch = 0 if draft.parents is None else BRANCH + leaf
        return cls(leaf, tuple(draft.ids[i] for i in above), chance, branch)

    def add(self, step: DraftStep, seq: Sequence, draft: Draft) -> None:
        """Propose a draft that begins here."""
        if self.leaf < 0:
            step.propose(seq, draft)
        else:
            step.extend(seq, draft, self.leaf)


COMMITTED = BranchPoint()
"""The place after committed text."""


def branch_points(step: DraftStep) -> Iterator[tuple[Sequence, BranchPoint, int]]:
    """(sequence, place, budget) of every sequence whose draft may be extended: after its most likely leaf."""
    seen: set[Sequence] = set()
    for seq, draft, leaf, budget in step.leaves:
        if seq not in seen:
            seen.add(seq)
            yield seq, BranchPoint.behind(draft, leaf), budget


def extension_estimate() -> AcceptanceEstimate:
    """Estimated share of places after other methods' drafts whose tokens are all accepted, in one sequence."""
    return AcceptanceEstimate(prior=0.5)


def tested_extensions(step: RollbackStep) -> Iterator[tuple[Sequence, bool]]:
    """(sequence, whether all tokens before it were accepted) of every draft with which the plugin extended another."""
    for seq in step.verdicts:
        part = step.part(seq)
        for piece in part.pieces:
            if piece.source == step.plugin and piece.leaf >= 0 and part.full_verdict is not None:
                yield seq, piece.was_tested(part.full_verdict.path)
