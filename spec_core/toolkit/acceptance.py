"""How many of a drafter's tokens were accepted in a sequence so far."""

from __future__ import annotations

import attrs

PRIOR, DECAY = 4.0, 0.95


@attrs.define
class AcceptanceEstimate:
    """A drafter's acceptance rate in one sequence: decayed counts of tested and accepted tokens, with a prior of 0.9.

    accepted, tested: the counts.
    """

    accepted: float = 0.0
    tested: float = 0.0

    @property
    def value(self) -> float:
        """Share of tested drafts that were accepted."""
        return (self.accepted + 0.9 * PRIOR) / (self.tested + PRIOR)

    def fade(self) -> None:
        """Let older counts weigh less; called once per step, whether something was drafted or not."""
        self.accepted *= DECAY
        self.tested *= DECAY

    def learn(self, drafted: int, accepted: int) -> None:
        """Accepted positions were tested, and the first rejected one; nothing after it was."""
        self.accepted += accepted
        self.tested += min(drafted, accepted + 1)
