"""Bottom-up verification of a tree: each leaf is tested with its whole path; rejected leaves are removed.

After Weng et al., "Traversal Verification for Speculative Tree Decoding", 2505.12398, written from its description; on
a chain it is block verification (2403.10444).
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from spec_core import AcceptStep, Compat, hookimpl
from spec_rules.decisions import Decision, Draw, Next, Trial
from spec_rules.distributions import Case, excess, normalise
from spec_rules.judging import DRAWN, judge_drafts


@attrs.define(eq=False)
class Traversal:
    """Keep the first path, from the leaves up, that is accepted as a whole. Lossless in distribution."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=DRAWN, noise="private")

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        judge_drafts(step, decisions)


def decisions(case: Case) -> Decision:
    """Test the paths to all nodes, each after those through its children. The root's probability is always 1."""
    return visit_node(case, -1, torch.ones((), dtype=torch.float64, device=case.p(0).device), None)


def visit_node(case: Case, node: int, pa: Tensor, rejected: Next | None) -> Decision:
    """The decisions about the paths through ``node``. pa: probability of the path so far. rejected: what comes next."""
    return reduce_by(case, node, case.children(node), case.p(1 + node), pa, rejected)


def reduce_by(case: Case, node: int, children: list[int], p: Tensor, pa: Tensor, rejected: Next | None) -> Decision:
    """A node is tested after all its children were rejected; each reduces its distribution p and probability pa."""
    if not children:
        draw = Draw(case.draft.ancestry(node), p)
        return Trial(pa, torch.ones_like(pa), lambda: draw, rejected)
    child, *rest = children
    q, token = case.q(child), case.draft.ids[child]

    def after_child() -> Decision:
        left = excess(pa * p, q)
        return reduce_by(case, node, rest, normalise(left, otherwise=p), chance(left.sum(), pa), rejected)

    return visit_node(case, child, (pa * p[token] / q[token]).clamp(max=1.0), after_child)


def chance(mass: Tensor, before: Tensor) -> Tensor:
    """m / (m + 1 - r): probability of a path whose next token was rejected. mass: of (r p - q)+; before: r."""
    whole = mass + (1 - before)  # equals mass if the path has probability 1
    return torch.where(whole > 0, mass / whole, 1.0)
