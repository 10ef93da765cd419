"""How a drafter's proposals fared in a sequence so far."""

from __future__ import annotations

import attrs

PRIOR, DECAY = 4.0, 0.95


@attrs.define
class Trust:
    """What a drafter's word was worth in a sequence so far: decayed counts over a prior of 0.9."""

    accepted: float = 0.0
    tested: float = 0.0

    @property
    def value(self) -> float:
        """Share of tested drafts that were accepted."""
        return (self.accepted + 0.9 * PRIOR) / (self.tested + PRIOR)

    def fade(self) -> None:
        """A bad stretch lowers the value and is forgotten, drafting or not."""
        self.accepted *= DECAY
        self.tested *= DECAY

    def learn(self, drafted: int, accepted: int) -> None:
        """Accepted positions were tested, and the first rejected one; nothing after it was."""
        self.accepted += accepted
        self.tested += min(drafted, accepted + 1)
