"""Which methods serve a sequence at all: some take time even in steps in which they do not draft."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from spec_control.arm import TRIALS, Arm
from spec_control.ledger import Ledger
from spec_control.machine import Machine

ENDURED = 2.0
"""Plain steps that a method may take while it does not draft, before it no longer serves a sequence."""
TEXTS = 4
"""Sequences that a method may draft for before it must wait for the income, if it does not gain."""
FIRST = 4
"""Steps after which it is looked at what a method takes while it does not draft, the first time."""


@attrs.define(eq=False)
class Service:
    """arms: of the run, by name."""

    machine: Machine
    ledger: Ledger
    arms: dict[str, Arm]

    def standing(self, arm: Arm) -> float:
        """What a method takes in a step in which it does not draft, in plain steps."""
        return arm.standing / self.machine.plain if self.machine.plain else 0.0

    def costly(self, arm: Arm) -> bool:
        return self.standing(arm) > self.ledger.income

    def admitted(self, arms: list[Arm]) -> list[Arm]:
        """Of methods that might serve a sequence that begins: all that cost little, and others that gain more.

        One that is not known to is tried now and then, one at a time.
        """
        cheap = [arm for arm in arms if not self.costly(arm)]
        gain = max((arm.value for arm in cheap), default=0.0)
        found, trying = [], False
        for arm in arms:
            if arm in cheap or self._better(arm, gain):
                found.append(arm)
            elif not trying and self._may_be_tried(arm):
                trying = True
                found.append(arm)
        return found

    def _better(self, arm: Arm, gain: float) -> bool:
        return self.ledger.balance > 0.0 and arm.paid and arm.value - (1.0 - arm.offering) * self.standing(arm) > gain

    def fresh(self, arm: Arm) -> bool:
        """A method that gains nothing so far has drafted for few sequences: it may gain in one that begins."""
        return not arm.paid and 0 < arm.texts < TEXTS and self.ledger.balance >= self.ledger.kept + arm.beginning

    def _may_be_tried(self, arm: Arm) -> bool:
        if self.fresh(arm):
            return True
        loss = ENDURED + 1.0 + arm.beginning
        return self.ledger.balance >= loss and (arm.steps < TRIALS or arm.since * self.ledger.income >= loss)

    def unwanted(self, joining: bool) -> list[Arm]:
        """Those that shall not serve sequences that begin while nobody drafts.

        joining: nobody drafts for these sequences either, for a time; otherwise it is decided when they begin.
        """
        if joining:
            return [arm for arm in self.arms.values() if self.costly(arm)]
        kept = self.admitted(list(self.arms.values()))
        return [arm for arm in self.arms.values() if arm not in kept and not arm.paid]

    def dropped(self, arms: Iterable[Arm], steps: int = 0) -> tuple[Arm, ...]:
        """Of methods that do not draft: those that have cost enough, or will have after so many steps."""
        costly = [arm for arm in arms if self.costly(arm)]
        return tuple(arm for arm in costly if (arm.since + steps) * self.standing(arm) >= ENDURED)

    def endured(self, arms: Iterable[Arm]) -> int | None:
        """Steps after which one of them has cost enough, or its cost is looked at first; None where none costs much."""
        found = [int(ENDURED / self.standing(arm)) for arm in arms if self.costly(arm)]
        found += [FIRST for arm in arms if not arm.stands]
        return min(found, default=None)
