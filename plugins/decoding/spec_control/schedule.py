"""When a plain step is made to be measured, though drafts would pay: others are compared with it."""

from __future__ import annotations

import attrs

FIRST, OFTEN, EARLY = 4, 32, 8
"""Steps before the first one, from then on up to twice as many each time; those after which it is often enough; and as
which part of them it may come earlier: a plan for the few steps that are left would cost more."""


@attrs.define
class Schedule:
    """until: steps before the next one. patience: the most that there may be now."""

    until: int = FIRST
    patience: int = FIRST
    _apart: int = FIRST

    @property
    def due(self) -> bool:
        return self.due_after(0)

    def due_after(self, steps: int) -> bool:
        """Whether it will be due after so many more steps with drafts."""
        return self.until - steps <= self._apart // EARLY

    def passed(self, plain: bool, surprised: bool, apart: int, apart_max: int, steps: int = 1) -> None:
        """So many steps are over, plain ones that were measured, some of them at least, or others.

        surprised: a cost has changed. apart: steps between two plain ones that lose little.
        """
        if not plain:
            self.until -= steps
        else:
            if self.until - steps <= 1 and not surprised:
                self.patience = min(apart_max, 2 * self.patience)
            self.until = self._apart = min(self.patience, max(OFTEN, apart))
        if surprised:
            self.until = min(self.until, 1)
