"""Constraints that break one promise each; the toy's own is the healthy one."""

from __future__ import annotations

import attrs
import numpy as np

from spec_core.testing import ToyConstraint
from spec_core.testing.constraint import ToyMatcher


class Constraint(ToyConstraint):
    """Healthy: some tokens after each pair of tokens."""

    matcher = ToyMatcher

    def start(self, target):
        return self.matcher(self, target.info.vocab, target.info.eog)


class RaisesAtTheStart(Constraint):
    """Raises when a text begins."""

    def start(self, target):
        raise ValueError("no")


class KeepsOneUndoneToken(Constraint):
    """Undoes one token too few where several are undone."""

    class matcher(ToyMatcher):
        def rollback(self, count):
            super().rollback(count - (count > 1))


class AdvancesInForced(Constraint):
    """Appends the tokens that it forces."""

    class matcher(ToyMatcher):
        def forced_tokens(self, count_max):
            self.tokens.append(1)
            return []


class RepeatsTheFirstMask(Constraint):
    """Has the first mask for every drafted token."""

    class matcher(ToyMatcher):
        def masks(self, drafted):
            rows = super().masks(drafted)
            return np.repeat(rows[:1], len(rows), axis=0)


class AcceptsEveryToken(Constraint):
    """Accepts tokens that its mask forbids."""

    class matcher(ToyMatcher):
        def advance(self, token):
            self.tokens.append(token)
            return True


@attrs.frozen
class HasOneTextForAll(Constraint):
    """Gives every request the same matcher."""

    made: list = attrs.field(factory=list)

    def start(self, target):
        if not self.made:
            self.made.append(super().start(target))
        return self.made[0]


class ForgetsItsDraft(Constraint):
    """Forbids all tokens but one after it was asked about a few drafted ones."""

    class matcher(ToyMatcher):
        looks = 0

        def masks(self, drafted):
            self.looks += len(drafted)
            rows = super().masks(drafted)
            if self.looks > 2:
                rows[:] = 0
                rows[:, 0] = 4
            return rows
