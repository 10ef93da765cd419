"""Rejection sampling, token by token; on trees recursively over siblings.

Leviathan, Kalman, Matias, 2211.17192; Chen et al., 2302.01318. Siblings are tested in the order drawn, each against
the residual of those before it: with equal rows that is SpecInfer's rule for drafts with replacement (2305.09781),
with rows renormalised after each draw recursive rejection without replacement (2402.14160), with point masses
"draw y ~ p and follow the child that equals it".
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from spec_core import Compat, Step, Verdict, hookimpl
from spec_rules.coins import Coins
from spec_rules.distributions import Case, residual
from spec_rules.judging import DRAWN, judge

Among = Callable[[Case, int, Coins], tuple[int | None, np.ndarray]]


@attrs.define(eq=False)
class Rejection:
    """Keep a drafted token with probability min(1, p / q). Lossless in distribution."""

    @hookimpl
    def compat(self) -> Compat:
        # A drafter that learns from rejected tokens would make its next length depend on shared noise.
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: Step) -> None:
        judge(step, verify)


def verify(case: Case, coins: Coins) -> Verdict:
    return top_down(case, coins, among)


def top_down(case: Case, coins: Coins, among: Among) -> Verdict:
    """Test the children of every kept node, then draw one token from the residual. among: chooses the child to keep."""
    path: list[int] = []
    node = -1
    while True:
        child, left = among(case, node, coins)
        if child is None:
            return Verdict(path, coins.draw(left))
        path.append(child)
        node = child


def among(case: Case, node: int, coins: Coins) -> tuple[int | None, np.ndarray]:
    """The first accepted child, or None; and the residual of the target's distribution after the rejected ones."""
    p = case.p(1 + node)
    for child in case.children(node):
        q, token = case.q(child), case.draft.ids[child]
        if coins.accept(p[token], q[token]):
            return child, p
        p = residual(p, q)
    return None, p
