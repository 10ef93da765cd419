"""Bottom-up verification of a tree: each leaf is tested with its whole path; rejected leaves are removed.

After Weng et al., "Traversal Verification for Speculative Tree Decoding", 2505.12398, written from its description; on
a chain it is block verification (2403.10444).
"""

from __future__ import annotations

import attrs

from spec_core import Compat, Step, Verdict, hookimpl
from spec_rules.coins import Coins
from spec_rules.distributions import Case, excess, normalised
from spec_rules.judging import DRAWN, judge


@attrs.define(eq=False)
class Traversal:
    """Keep the first path, from the leaves up, that is accepted as a whole. Lossless in distribution."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: Step) -> None:
        judge(step, verify)


def verify(case: Case, coins: Coins) -> Verdict:
    found = visit(case, -1, 1.0, coins)
    assert found is not None  # the root's probability is always 1
    return found


def visit(case: Case, node: int, pa: float, coins: Coins) -> Verdict | None:
    """The verdict if the path to ``node``, or a longer one through it, is kept. pa: probability of the path so far.

    A node is tested after all its children were rejected; each rejection reduces its distribution and probability.
    """
    p = case.p(1 + node)
    for child in case.children(node):
        q, token = case.q(child), case.draft.ids[child]
        found = visit(case, child, min(1.0, pa * p[token] / q[token]), coins)
        if found is not None:
            return found if node < 0 else Verdict((node, *found.path), found.next_token)
        left = excess(pa * p, q)
        p, pa = normalised(left, otherwise=p), chance(left.sum(), pa)
    if not coins.accept(pa, 1.0):
        return None
    return Verdict(() if node < 0 else (node,), coins.draw(p))


def chance(mass: float, before: float) -> float:
    """m / (m + 1 - r): probability of a path whose next token was rejected. mass: of (r p - q)+; before: r."""
    whole = mass + (1 - before)  # equals mass if the path has probability 1
    return mass / whole if whole > 0 else 1.0
