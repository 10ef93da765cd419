"""Typical acceptance: keeps tokens that are not unlikely under the target. LOSSY.

Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", 2401.10774, section
2.3.1: a drafted token is kept while p(x) > min(epsilon, delta exp(-H(p))).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import attrs
import numpy as np
import torch
from attrs.validators import ge, in_, le
from torch import Tensor

from spec_core import AcceptStep, Compat, Verdict, hookimpl
from spec_rules.decisions import draw
from spec_rules.distributions import Case
from spec_rules.judging import judge_on_host, sampling_with_draft


@attrs.define(eq=False)
class Typical:
    """Keep the longest path whose tokens are typical of the target."""

    epsilon: float = attrs.field(
        default=0.09, validator=[ge(0.0), le(1.0)], metadata={"help": "a probability above this is always typical"}
    )
    delta: float = attrs.field(
        default=0.3,
        validator=[ge(0.0), le(1.0)],
        metadata={"help": "share of exp(-entropy) that is typical"},
    )
    token: Literal["greedy", "sampled"] = attrs.field(
        default="greedy",
        validator=in_(("greedy", "sampled")),
        metadata={"help": "how the token after the kept path is chosen: most likely (as in the paper), or drawn"},
    )

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="private", lossy="typical acceptance keeps drafts that the target would not have drawn")

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        judge_on_host(step, sampling_with_draft(step), self.verify)

    def verify(self, case: Case, uniforms: np.ndarray) -> Verdict:
        path = self.longest_typical_path(case)
        p = case.p(1 + path[-1] if path else 0)
        spent = sum(1 - float(case.p(1 + node)[case.draft.ids[j]]) for node, j in pairwise((-1, *path)))
        if self.token == "sampled":
            return Verdict(path, draw(p.numpy(), float(uniforms[0])), spent)
        return Verdict(path, int(p.argmax()), spent + 1 - float(p.max()))

    def longest_typical_path(self, case: Case) -> tuple[int, ...]:
        """The longest typical path; ties go to the most likely, then to the first."""
        fit: dict[int, tuple[int, float]] = {-1: (0, 0.0)}
        for node in range(-1, len(case.draft)):
            if node in fit and (children := case.children(node)):
                depth, log_p = fit[node]
                p = case.p(1 + node)
                bar = threshold(p, self.epsilon, self.delta)
                chances = {j: float(p[case.draft.ids[j]]) for j in children}
                fit |= {j: (depth + 1, log_p + math.log(c)) for j, c in chances.items() if c > bar}
        return case.draft.ancestry(max(fit, key=lambda j: fit[j]))


def threshold(p: Tensor, epsilon: float, delta: float) -> float:
    """min(epsilon, delta exp(-H(p)))"""
    return min(epsilon, delta * math.exp(-entropy(p)))


def entropy(p: Tensor) -> float:
    """Entropy in nats."""
    return float(torch.special.entr(p).sum())
