"""Sample, then match: the target draws its token, and a child that equals it is kept.

Works for every kind of proposal, since the children's probabilities are not needed. Equal in
distribution to the core's rule, but with private coins instead of noise that drafters can read.
"""

from __future__ import annotations

import attrs

from spec_core import Compat, Step, Verdict, hookimpl
from spec_core.toolkit import walk
from spec_rules.coins import Coins
from spec_rules.distributions import Case
from spec_rules.judging import judge


@attrs.define(eq=False)
class PointMass:
    """Keep drafted tokens that equal independent draws of the target. Lossless in distribution, for all proposals."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="private")

    @hookimpl
    def accept(self, step: Step) -> None:
        judge(step, verify)


def verify(case: Case, coins: Coins) -> Verdict:
    return walk(case.draft, lambda row: coins.draw(case.p(row)))
