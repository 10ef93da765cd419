"""Sample, then match: the target draws its token, and a child that equals it is kept.

Works for every kind of proposal, since the children's probabilities are not needed. Equal in
distribution to the core's rule, but with private coins instead of noise that drafters can read.
"""

from __future__ import annotations

import attrs

from spec_core import AcceptStep, Compat, hookimpl
from spec_rules.decisions import Decision, Draw
from spec_rules.distributions import Case
from spec_rules.judging import judge_drafts


@attrs.define(eq=False)
class PointMass:
    """Keep drafted tokens that equal independent draws of the target. Lossless in distribution, for all proposals."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="private")

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        judge_drafts(step, decisions)


def decisions(case: Case, node: int = -1) -> Decision:
    """Draw a token of the target after a kept node, and after the child that equals it."""
    children = case.draft.children(node).items()
    nexts = {token: lambda child=child: decisions(case, child) for token, child in children}
    return Draw(case.draft.ancestry(node), case.p(1 + node), nexts)
