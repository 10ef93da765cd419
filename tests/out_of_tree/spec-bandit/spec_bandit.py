"""Learn for each text which of several methods to use (UCB1; BanditSpec, Hou et al., 2505.15141).

Every step one method may draft, the one whose upper confidence bound is highest::

    spec generate -m zoo:pico --method bandit --method ngram --method draft-model -p "def add(a, b):"
"""

from __future__ import annotations

from math import inf, log, sqrt

import attrs
from attrs.validators import ge

from spec_core import Compat, DraftPlan, Limit, StashKey, hookimpl


@attrs.define
class Arm:
    """The results of one method on one text."""

    asked: int = 0
    reward: float = 0.0

    def upper_bound(self, rounds: int, width: float) -> float:
        return self.reward / self.asked + width * sqrt(log(rounds) / self.asked) if self.asked else inf


@attrs.define
class Memory:
    """State of one text: its arms, and the one used in this step."""

    arms: dict[str, Arm] = attrs.field(factory=dict)
    asked: str | None = None

    def best(self, names: list[str], width: float) -> str:
        """Name of the method with the largest bound; the first of equal ones."""
        arms = {name: self.arms.setdefault(name, Arm()) for name in names}
        rounds = 1 + sum(arm.asked for arm in arms.values())
        return max(names, key=lambda name: arms[name].upper_bound(rounds, width))


@attrs.define(eq=False)
class Bandit:
    """Lets one method draft in each step, the most promising one."""

    width: float = attrs.field(
        default=0.5, validator=ge(0.0), metadata={"help": "how much a method that was asked seldom is tried"}
    )
    memory: StashKey[Memory] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        arms = {}
        for seq, _ in step.undrafted:
            names = [name for name in step.methods if seq.wants(name)]
            if len(names) > 1:
                memory = seq.stash.setdefault(self.memory, Memory())
                memory.asked = memory.best(names, self.width)
                arms[seq.number] = {memory.asked: Limit()}
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit()), arms))

    @hookimpl
    def rollback(self, step):
        for seq in step.verdicts:
            memory = seq.stash.get(self.memory)
            if memory and memory.asked:
                arm, memory.asked = memory.arms[memory.asked], None
                kept = len(step.part(seq).full_verdict.path)
                arm.asked += 1
                arm.reward += kept / (kept + 1)  # the share of the step's tokens that drafts brought
