"""Block verification: judges the whole chain at once; on average it keeps at least as much as token-by-token tests.

Sun et al., "Block Verification Accelerates Speculative Decoding", 2403.10444, algorithm 2.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from spec_core import AcceptStep, Compat, hookimpl
from spec_rules import traversal
from spec_rules.decisions import Decision, Draw, Trial
from spec_rules.distributions import Case, excess, normalise
from spec_rules.judging import DRAWN, judge_drafts
from spec_rules.traversal import chance


@attrs.define(eq=False)
class Block:
    """Keep the longest prefix that is accepted as a block. Lossless in distribution. Trees use its generalisation."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        judge_drafts(step, decisions)


def decisions(case: Case) -> Decision:
    """Keep the longest prefix whose coin is below its probability, then draw a token from the residual."""
    if case.draft.parents is not None:
        return traversal.decisions(case)
    r = ratios(case)
    length = len(case.draft)
    draw = lambda: Draw(tuple(range(length)), case.p(length))
    return Trial(r[length], torch.ones_like(r[0]), draw, lambda: shorter_prefixes(case, r, length - 1))


def shorter_prefixes(case: Case, r: list[Tensor], i: int) -> Decision:
    """The decisions about the prefixes of at most ``i`` drafts; the empty one has probability 1."""
    p = case.p(i)
    left = excess(r[i] * p, case.q(i))
    draw = lambda: Draw(tuple(range(i)), normalise(left, otherwise=p))
    rejected = (lambda: shorter_prefixes(case, r, i - 1)) if i else None
    return Trial(chance(left.sum(), r[i]), torch.ones_like(r[i]), draw, rejected)


def ratios(case: Case) -> list[Tensor]:
    """r_0 = 1, r_i = min(1, r_{i-1} p_i(x_i) / q_i(x_i)): K + 1 scalars."""
    r = [torch.ones((), dtype=torch.float64, device=case.p(0).device)]
    for i, token in enumerate(case.draft.ids):
        r.append((r[i] * case.p(i)[token] / case.q(i)[token]).clamp(max=1.0))
    return r
