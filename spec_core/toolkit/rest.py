"""Steps in which nobody drafts, as a controller said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step


@attrs.define
class Rest:
    """What ``step.rest`` said, for a loop that makes the steps.

    steps: how many are left.

    without: methods that do not serve sequences that begin in these steps. known: numbers of those that began before.
    """

    steps: int = 0
    without: frozenset[str] = frozenset()
    known: set[int] = attrs.field(factory=set)

    def begin(self, step: Step) -> None:
        """Take over what a controller of this step said."""
        if step.resting is not None:
            self.steps, self.without = step.resting
            self.known = {part.seq.number for part in step.parts}

    def lasts(self, running: Iterable[Sequence], proposals: Mapping[str, frozenset[str]]) -> bool:
        """Whether the next step belongs to it; a sequence that joins ends it, if a method serves it.

        proposals: {plugin: kinds of proposal it may draft}; plugins in ``without`` are taken from sequences that join.
        """
        if not self.steps:
            return False
        for seq in running:
            if seq.number not in self.known:
                self.known.add(seq.number)
                seq.drop(self.without, proposals)
                if any(seq.wants(name) for name, kinds in proposals.items() if kinds):
                    self.steps = 0
                    return False
        self.steps -= 1
        return True
