"""The decisions of a rule, as a tree that is built without knowing their outcomes.

Every number in it is a function of the rows and of the outcomes before it. So a walk on the host can build a decision
when it reaches it, and a device can compute all of them, and the token of every possible draw, before one transfer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core import Verdict


@attrs.frozen(eq=False)
class Trial:
    """The decision to go on with ``accepted``, with probability min(1, p / q) and never for p = 0, or ``rejected``.

    p, q: float64 scalars. rejected: None where p equals q. refusal: why the rule cannot judge the draft if q is NaN.
    """

    p: Tensor
    q: Tensor
    accepted: Next
    rejected: Next | None
    refusal: str = ""

    @property
    def nexts(self) -> Mapping[int, Next]:
        """{1 if it is accepted, or 0: what follows it}."""
        return {1: self.accepted} | ({0: self.rejected} if self.rejected else {})


@attrs.frozen(eq=False)
class Draw:
    """The draw of a token after the drafts ``path``, with probability proportional to ``weights`` [V] float64.

    nexts: {token: what follows it}; after another token the verdict is known.
    """

    path: tuple[int, ...]
    weights: Tensor
    nexts: Mapping[int, Next] = attrs.field(factory=dict)


Decision = Trial | Draw
Next = Callable[[], Decision]
Walk = Callable[[list[float]], Verdict | None]
"""Numbers on the host -> verdict; None if they come from a row of the target without a finite logit."""


def follow_decision(decision: Decision, uniforms: np.ndarray) -> Verdict:
    """The verdict of decisions on the host, each of them built when it is reached. uniforms: one for each, float64."""
    for u in uniforms.tolist():
        if isinstance(decision, Trial):
            outcome = trial_outcome(float(decision.p), float(decision.q), u, decision.refusal)
        else:
            outcome = draw(decision.weights.numpy(), u)
            if outcome not in decision.nexts:
                return Verdict(decision.path, outcome)
        decision = decision.nexts[outcome]()
    raise AssertionError("a path has fewer decisions than there are uniforms")


def compute_decisions(root: Decision, uniforms: np.ndarray) -> tuple[Tensor, Walk]:
    """([2 N] float64, two numbers of every decision on its device; the walk that reads them on the host)."""
    decisions, depths = [root], [0]
    nexts: list[dict[int, int]] = []
    for i, decision in enumerate(decisions):  # the list grows
        nexts.append({})
        for outcome, build in decision.nexts.items():
            nexts[i][outcome] = len(decisions)
            decisions.append(build())
            depths.append(depths[i] + 1)
    labels = [decision.refusal if isinstance(decision, Trial) else decision.path for decision in decisions]

    def walk(numbers: list[float]) -> Verdict | None:
        at = 0
        for u in uniforms.tolist():
            p, q = numbers[2 * at : 2 * at + 2]
            if math.isnan(p):
                return None
            label = labels[at]
            outcome = trial_outcome(p, q, u, label) if isinstance(label, str) else int(p)
            if outcome not in nexts[at]:
                assert not isinstance(label, str)
                return Verdict(label, outcome)
            at = nexts[at][outcome]
        raise AssertionError("a path has fewer decisions than there are uniforms")

    return numbers_of(decisions, uniforms[depths]), walk


def numbers_of(decisions: list[Decision], uniforms: np.ndarray) -> Tensor:
    """[2 N] float64: p and q of every trial, the token of every draw twice. uniforms: [N]"""
    draws = [i for i, decision in enumerate(decisions) if isinstance(decision, Draw)]
    weights = torch.stack([decision.weights for decision in decisions if isinstance(decision, Draw)])
    tokens = iter(draw_tokens(weights, torch.from_numpy(uniforms[draws]).to(weights.device)))
    pairs = [(decision.p, decision.q) if isinstance(decision, Trial) else (next(tokens),) * 2 for decision in decisions]
    return torch.stack([number for pair in pairs for number in pair])


def trial_outcome(p: float, q: float, u: float, refusal: str) -> int:
    """1 if a uniform accepts a trial, else 0. Raises ValueError if q is NaN."""
    if math.isnan(q):
        raise ValueError(refusal)
    return int(u * q < p)


def draw(weights: np.ndarray, u: float) -> int:
    """The index at which the cumulative sum passes ``u`` of the total; never one of weight 0. weights: [V] float64."""
    sums = weights.cumsum()
    at = int(np.searchsorted(sums, u * sums[-1], side="right"))
    return at if at < len(sums) else int(weights.nonzero()[0][-1])


def draw_tokens(weights: Tensor, uniforms: Tensor) -> Tensor:
    """[n] float64: ``draw`` from every row on its device; NaN for a row with NaN.

    The running sums of a device need not rise, so every index of weight 0 is left out. weights: [n, V] float64.
    uniforms: [n] float64.
    """
    sums = weights.cumsum(-1) * (weights > 0)
    total = sums.amax(-1, keepdim=True)
    tokens = ((sums > uniforms[:, None] * total) | (sums == total)).byte().argmax(-1)
    return torch.where(total[:, 0].isnan(), torch.nan, tokens.double())
