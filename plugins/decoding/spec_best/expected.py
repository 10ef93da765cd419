"""The speedup that a method is expected to reach, by measured costs and the acceptance that is usual for its kind."""

from __future__ import annotations

from spec_costs.bounds import constant_length
from spec_costs.file import Costs
from spec_costs.gains import LONGEST, gain_of, step_curve

ACCEPTANCE = {
    "dspark": 0.85,
    "dspine": 0.85,
    "lilicorr": 0.85,
    "dflash2": 0.85,
    "dflash": 0.8,
    "eagle3": 0.8,
    "mtp": 0.75,
    "assistant": 0.75,
    "draft-model": 0.7,
}
"""Chance of each drafted token after accepted ones, at temperature 0 on chats, questions and code.

Sources: mean acceptance lengths in the papers of EAGLE-3 (arXiv 2503.01840: 6.2 tokens a step) and DFlash (2602.06036:
6.5), Spec-Bench (2401.07851) for draft models (2.2 with five drafted tokens); small drafters reach less than published
ones, so the values lie below the papers'.
"""
LOOKUP_SHARE, LOOKUP_ACCEPTANCE = 0.3, 0.8
"""Share of steps in which lookup offers a draft, and the chance of its tokens: 1.7 tokens a step (Spec-Bench, PLD)."""


def expected_speedup(costs: Costs, method: str) -> float | None:
    """The speedup with drafts of the best length; None if the drafts of this method were not measured."""
    if method not in ACCEPTANCE:
        return None
    gain = gain_of(costs, method, [ACCEPTANCE[method]] * LONGEST)
    return None if gain is None else gain.speedup


def expected_lookup_speedup(costs: Costs) -> float:
    """The speedup with lookup, whose drafts take no forward."""
    return constant_length(step_curve(costs), [LOOKUP_ACCEPTANCE] * LONGEST, share=LOOKUP_SHARE).speedup
