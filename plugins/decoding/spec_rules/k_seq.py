"""K-SEQ: siblings drawn independently from one distribution, tested with one shared threshold.

Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", 2310.15141, algorithm 3.
"""

from __future__ import annotations

import math

import attrs
import torch
from torch import Tensor

from spec_core import AcceptStep, Compat, hookimpl
from spec_rules import rejection
from spec_rules.decisions import Decision, Draw, Trial
from spec_rules.distributions import Case, excess, normalise, residual
from spec_rules.judging import DRAWN, judge_drafts

BISECTIONS = 30
DIFFERENT_ROWS = (
    "k-seq judges siblings drawn independently from one distribution, but these have different rows of probs; "
    "use --rule rejection or traversal for siblings drawn without replacement"
)
"""Message for siblings that k-seq cannot judge."""


@attrs.define(eq=False)
class KSeq:
    """Keep a sibling with probability min(1, p / (rho q)). Lossless in distribution for siblings with replacement."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        judge_drafts(step, decisions)


def decisions(case: Case, node: int = -1) -> Decision:
    """Test the children of a kept node, and of those below it, with one threshold; then draw from what they leave of p.

    Point masses are not independent draws: such siblings are rejected one after the other.
    """
    p, children = case.p(1 + node), case.children(node)
    if len(children) < 2 or case.draft.proposal == "deterministic":
        return rejection.try_in_order(case, node, children, p, decisions)
    return try_siblings(case, node, p, children)


def try_siblings(case: Case, node: int, p: Tensor, children: list[int]) -> Decision:
    """Test several children. Point masses and different rows are found where the rows are, not on the host."""
    tokens, rows = [case.draft.ids[child] for child in children], [case.q(child) for child in children]
    q, k = rows[0], len(children)
    certain = torch.stack([row[token] == 1 for row, token in zip(rows, tokens, strict=True)]).all()
    shared = torch.stack([(row == q).all() for row in rows]).all()
    rho = torch.where(shared, threshold(p, q, k), math.nan)

    def decision(i: int, left: Tensor) -> Decision:
        """left: the residual after point masses."""
        if i == k:
            return Draw(case.draft.ancestry(node), torch.where(certain, left, left_over(p, q, rho, k)))
        token, row = tokens[i], rows[i]
        return Trial(
            torch.where(certain, left[token], p[token]),
            torch.where(certain, row[token], rho * q[token]),
            accepted=lambda: decisions(case, children[i]),
            rejected=lambda: decision(i + 1, residual(left, row)),
            refusal=DIFFERENT_ROWS,
        )

    return decision(0, p)


def overlap(p: Tensor, q: Tensor, rho: Tensor) -> Tensor:
    """beta(rho): the probability that one sibling is accepted."""
    return torch.minimum(p / rho, q).sum()


def relative_acceptance(beta: Tensor, k: int) -> Tensor:
    """(1 - (1 - beta)^k) / beta: accepted probability of k siblings relative to a single one."""
    return torch.where(beta > 0, (1 - (1 - beta) ** k) / beta, float(k))


def threshold(p: Tensor, q: Tensor, k: int) -> Tensor:
    """rho in [1, k] with 1 - (1 - beta)^k = rho beta, rounded up, so that no more than p is accepted."""
    low = torch.ones_like(p[0])
    high = low * k
    for _ in range(BISECTIONS if k > 1 else 0):
        middle = (low + high) / 2
        above = relative_acceptance(overlap(p, q, middle), k) > middle
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return high


def left_over(p: Tensor, q: Tensor, rho: Tensor, k: int) -> Tensor:
    """norm((p - min(q, p / rho) (1 - (1 - beta)^k) / beta)+)"""
    accepted = torch.minimum(q, p / rho) * relative_acceptance(overlap(p, q, rho), k)
    return normalise(excess(p, accepted), otherwise=p)
