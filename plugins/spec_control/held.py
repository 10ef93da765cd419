"""A plan that holds for several steps, while its drafts lose little."""

from __future__ import annotations

import attrs

from spec_control.pacer import Pacer
from spec_core import Part, Step

LOST = 2.0
"""Drafts that were wholly rejected after which there is a new plan, if none in between gained anything."""


@attrs.define(eq=False)
class Held:
    """steps: for which the plan still holds. requests: numbers of those that it was made for.

    spare: plain steps that its drafts may still lose. plain: seconds of a plain step when it was made.
    """

    steps: int = 0
    requests: list[int] = attrs.field(factory=list)
    spare: float = 0.0
    plain: float = 0.0

    def begin(self, step: Step, pacer: Pacer) -> None:
        """There is a new plan."""
        self.steps, self.requests, self.plain = pacer.hold - 1, numbers(step.parts), pacer.machine.plain
        self.spare = min(pacer.ledger.balance - pacer.loss, LOST * pacer.loss)

    def holds(self, step: Step) -> bool:
        """Whether this step needs no plan of its own."""
        if not self.steps or step.before is None:
            return False
        self.steps -= 1
        self.spare -= step.before.whole / self.plain
        return self.spare >= 0.0 and numbers(step.parts) == self.requests

    def made(self, step: Step) -> None:
        """What a step of the plan brought, as tokens of each sequence."""
        if self.steps:
            self.spare += sum(len(part.emitted) for part in step.parts) / len(step.parts)


def numbers(parts: list[Part]) -> list[int]:
    """Of the requests."""
    return [part.seq.number for part in parts]
