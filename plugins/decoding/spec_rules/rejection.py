"""Rejection sampling, token by token; on trees recursively over siblings.

Leviathan, Kalman, Matias, 2211.17192; Chen et al., 2302.01318. Siblings are tested in the order drawn, each against
the residual of those before it: with equal rows that is SpecInfer's rule for drafts with replacement (2305.09781),
with rows renormalised after each draw recursive rejection without replacement (2402.14160), with point masses
"draw y ~ p and follow the child that equals it".
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from torch import Tensor

from spec_core import AcceptStep, Compat, hookimpl
from spec_rules.decisions import Decision, Draw, Trial
from spec_rules.distributions import Case, residual
from spec_rules.judging import DRAWN, judge_drafts

Below = Callable[[Case, int], Decision]


@attrs.define(eq=False)
class Rejection:
    """Keep a drafted token with probability min(1, p / q). Lossless in distribution."""

    @hookimpl
    def compat(self) -> Compat:
        # A drafter that learns from rejected tokens would make its next length depend on shared noise.
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        judge_drafts(step, decisions)


def decisions(case: Case, node: int = -1) -> Decision:
    """Test the children of a kept node and of those below it, then draw one token from the residual."""
    return try_in_order(case, node, case.children(node), case.p(1 + node), decisions)


def try_in_order(case: Case, node: int, children: list[int], p: Tensor, below: Below) -> Decision:
    """Test each child against what those before it left. p: the residual. below: decisions after a kept child."""
    if not children:
        return Draw(case.draft.ancestry(node), p)
    child, *rest = children
    q, token = case.q(child), case.draft.ids[child]
    return Trial(
        p[token],
        q[token],
        accepted=lambda: below(case, child),
        rejected=lambda: try_in_order(case, node, rest, residual(p, q), below),
    )
