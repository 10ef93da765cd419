"""The accept hook that the rules for sampled text share."""

from __future__ import annotations

from collections.abc import Callable

from spec_core import Step, Verdict
from spec_core.errors import TargetError
from spec_rules.coins import Coins, coins
from spec_rules.distributions import Case, cases

Verify = Callable[[Case, Coins], Verdict]
DRAWN = frozenset({"sampled", "deterministic", "mixed"})
"""Kinds of proposal that a rule with ratios p / q can judge: q of every token is known, or is a point mass."""


def judge(step: Step, verify: Verify) -> None:
    """Decide the sequences that sample and have a draft.

    The core decides the others: at temperature 0 every rule is exact match, and without a draft the target chooses.
    """
    seqs = [seq for seq in step.undecided if step.part(seq).drafted and seq.sampling.temperature > 0]
    for seq, case in cases(step, seqs).items():
        try:
            step.decide(seq, verify(case, coins(step, seq, step.part(seq).drafted)))
        except TargetError as error:
            step.fail(seq, error)
