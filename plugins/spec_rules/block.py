"""Block verification: judges the whole chain at once; on average it keeps at least as much as token-by-token tests.

Sun et al., "Block Verification Accelerates Speculative Decoding", 2403.10444, algorithm 2.
"""

from __future__ import annotations

import attrs

from spec_core import Compat, Step, Verdict, hookimpl
from spec_rules import traversal
from spec_rules.coins import Coins
from spec_rules.distributions import Case, excess, normalised
from spec_rules.judging import DRAWN, judge
from spec_rules.traversal import chance


@attrs.define(eq=False)
class Block:
    """Keep the longest prefix that is accepted as a block. Lossless in distribution. Trees use its generalisation."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: Step) -> None:
        judge(step, verify)


def verify(case: Case, coins: Coins) -> Verdict:
    """Keep the longest prefix whose coin is below its probability, then draw a token from the residual."""
    if case.draft.parents is not None:
        return traversal.verify(case, coins)
    r = ratios(case)
    length = len(case.draft)
    if coins.accept(r[length], 1.0):
        return Verdict(range(length), coins.draw(case.p(length)))
    for i in reversed(range(length)):
        p = case.p(i)
        left = excess(r[i] * p, case.q(i))
        if coins.accept(chance(left.sum(), r[i]), 1.0):
            return Verdict(range(i), coins.draw(normalised(left, otherwise=p)))
    raise AssertionError("the empty prefix has probability 1")


def ratios(case: Case) -> list[float]:
    """r_0 = 1, r_i = min(1, r_{i-1} p_i(x_i) / q_i(x_i)): K + 1 numbers."""
    r = [1.0]
    for i, token in enumerate(case.draft.ids):
        r.append(min(1.0, r[i] * case.p(i)[token] / case.q(i)[token]))
    return r
