"""Steps in which nobody drafts, as a controller said."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step


@attrs.define
class Rest:
    """steps: how many are left. controller: who said so.

    without: methods that do not serve sequences that begin in these steps. known: numbers of those that began before.
    """

    steps: int = 0
    controller: str = ""
    without: frozenset[str] = frozenset()
    known: set[int] = attrs.field(factory=set)

    def begin(self, step: Step) -> None:
        """Take over what a controller of this step said."""
        if step.resting is not None:
            self.controller, self.steps, self.without = step.resting
            self.known = {part.seq.number for part in step.parts}

    def lasts(self, running: Iterable[Sequence], plugins: Iterable[str]) -> bool:
        """Whether the next step belongs to it; a sequence that wants no control ends it.

        plugins: of the run; those in ``without`` are taken from sequences that begin.
        """
        if not self.steps:
            return False
        for seq in running:
            if not seq.wants(self.controller):
                self.steps = 0
                return False
            if seq.number not in self.known:
                self.known.add(seq.number)
                seq.drop(self.without, plugins)
        self.steps -= 1
        return True
