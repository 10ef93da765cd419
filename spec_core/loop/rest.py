"""Steps in which nobody drafts, as a controller said."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step


@attrs.define
class Rest:
    """steps: how many are left. numbers: of the sequences for which it was said."""

    steps: int = 0
    numbers: list[int] = attrs.field(factory=list)

    def begin(self, step: Step) -> None:
        """Take over what the controllers of this step said."""
        if step.resting:
            self.steps, self.numbers = step.resting, [part.seq.number for part in step.parts]

    def lasts(self, running: Iterable[Sequence]) -> bool:
        """Whether the next step belongs to it; a sequence that joins or leaves ends it."""
        if not self.steps:
            return False
        if [seq.number for seq in running] != self.numbers:
            self.steps = 0
            return False
        self.steps -= 1
        return True
