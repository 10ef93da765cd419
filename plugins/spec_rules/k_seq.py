"""K-SEQ: siblings drawn independently from one distribution, tested with one shared threshold.

Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", 2310.15141, algorithm 3.
"""

from __future__ import annotations

import attrs
import numpy as np

from spec_core import Compat, Step, Verdict, hookimpl
from spec_rules import rejection
from spec_rules.coins import Coins
from spec_rules.distributions import Case, excess, normalised
from spec_rules.judging import DRAWN, judge

BISECTIONS = 30


@attrs.define(eq=False)
class KSeq:
    """Keep a sibling with probability min(1, p / (rho q)). Lossless in distribution for siblings with replacement."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: Step) -> None:
        judge(step, verify)


def verify(case: Case, coins: Coins) -> Verdict:
    """Verify a draft."""
    return rejection.top_down(case, coins, among)


def among(case: Case, node: int, coins: Coins) -> tuple[int | None, np.ndarray]:
    """The first accepted sibling, or None; and the residual of the target's distribution if none is accepted.

    Point masses are not independent draws: such siblings are rejected one after the other.
    """
    p, siblings = case.p(1 + node), case.children(node)
    if not siblings:
        return None, p
    if all(case.q(child)[case.draft.ids[child]] == 1 for child in siblings):
        return rejection.among(case, node, coins)
    q = shared_distribution(case, siblings)
    rho = threshold(p, q, len(siblings))
    for child in siblings:
        token = case.draft.ids[child]
        if coins.accept(p[token], rho * q[token]):
            return child, p
    return None, left_over(p, q, rho, len(siblings))


def shared_distribution(case: Case, siblings: list[int]) -> np.ndarray:
    """The distribution that all siblings were drawn from. Raises ValueError if their rows differ."""
    q = case.q(siblings[0])
    if not all(np.array_equal(q, case.q(j)) for j in siblings[1:]):
        raise ValueError(
            "k-seq judges siblings drawn independently from one distribution, but these have different rows of probs; "
            "use --rule rejection or traversal for siblings drawn without replacement"
        )
    return q


def overlap(p: np.ndarray, q: np.ndarray, rho: float) -> float:
    """beta(rho): the probability that one sibling is accepted."""
    return float(np.minimum(p / rho, q).sum())


def taken(beta: float, k: int) -> float:
    """(1 - (1 - beta)^k) / beta: accepted probability of k siblings relative to a single one."""
    return (1 - (1 - beta) ** k) / beta if beta > 0 else float(k)


def threshold(p: np.ndarray, q: np.ndarray, k: int) -> float:
    """rho in [1, k] with 1 - (1 - beta)^k = rho beta, rounded up, so that no more than p is accepted."""
    low, high = 1.0, float(k)
    for _ in range(BISECTIONS if k > 1 else 0):
        middle = (low + high) / 2
        if taken(overlap(p, q, middle), k) > middle:
            low = middle
        else:
            high = middle
    return high


def left_over(p: np.ndarray, q: np.ndarray, rho: float, k: int) -> np.ndarray:
    """norm((p - min(q, p / rho) (1 - (1 - beta)^k) / beta)+)"""
    accepted = np.minimum(q, p / rho) * taken(overlap(p, q, rho), k)
    return normalised(excess(p, accepted), otherwise=p)
