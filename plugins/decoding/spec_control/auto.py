"""``--control auto``: the method and draft length with the most tokens per time, or plain decoding."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from threading import Lock
from typing import Any

import attrs
from attrs.setters import NO_OP
from attrs.validators import ge, gt
from spec_costs.file import read as read_costs

from spec_control.arm import Arm
from spec_control.hold import UNKNOWN
from spec_control.learning import Learner, Memory
from spec_control.ledger import Ledger
from spec_control.pacer import Pacer
from spec_control.preemption import preemptions
from spec_control.track import Grants, Track
from spec_core import Compat, Part, Sequence, Step, StepRecord, hookimpl

TIMED = "the length of drafts follows measured times, and the text of a seed depends on it here: {}"
REPRODUCE = "control=fixed reproduces it"


@attrs.define(eq=False, on_setattr=NO_OP)
class Auto:
    """Drafts as long as they pay, and never costs more than a stated share of plain decoding."""

    share: float = attrs.field(
        default=0.01, validator=gt(0.0), metadata={"help": "time that may be lost, as a share of plain decoding"}
    )
    balance: float = attrs.field(
        default=20.0, validator=gt(0.0), metadata={"help": "plain steps that may be lost beside that share"}
    )
    plain_every: int = attrs.field(
        default=128, validator=ge(8), metadata={"help": "max steps between two plain ones that are measured"}
    )
    costs: str | None = attrs.field(
        default=None, metadata={"help": "file of `spec bench step --out`, with costs to begin with"}
    )
    pacer: Pacer = attrs.field(init=False)
    learner: Learner = attrs.field(init=False)
    exact: str | None = attrs.field(default=None, init=False)
    private: bool = attrs.field(default=False, init=False)
    _preempted: int = attrs.field(default=0, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)
    _passed: list[StepRecord] = attrs.field(factory=list, init=False)
    _name: str = attrs.field(default="", init=False)
    _methods: Any = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Any = None) -> None:
        """What is measured is of one run."""
        self.pacer = Pacer(Ledger(self.share, self.balance), every=self.plain_every)
        self.pacer.choice.longest = 1
        self.learner, self._passed, self._preempted = Learner(self.pacer), [], preemptions()
        self.exact = None if target is None else target.info.exact
        if self.costs is not None and target is not None:
            found = read_costs(Path(self.costs))
            found.check(target)
            self.pacer.machine.begin_with(found.steps)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=(), load=self._begin, report=self.report)

    def report(self) -> dict[str, Any]:
        """What was chosen, what it gained, and the account, in plain steps. To ask for it changes no plan."""
        with self._lock:  # another thread may ask, while the run makes steps
            learner = deepcopy(self.learner)
            self._learn(learner)
        book, ledger = learner.pacer.book, learner.pacer.ledger
        account = {
            "balance": ledger.balance,
            "lowest": ledger.lowest,
            "excess": ledger.excess,
            "balance_max": ledger.balance_max,
            "share": ledger.income,
        }
        return {"summary": book.summary(), **book.report(), "ledger": account, "note": self.note}

    @property
    def note(self) -> str | None:
        """Why a seed's text depends on measured time; None where it does not."""
        if self.private:
            return TIMED.format(f"the rule draws with noise of its own; {REPRODUCE}")
        if self.exact not in (None, "", "rows"):
            return TIMED.format(f"rows are not equal to the bit; {REPRODUCE}")
        return None

    # hooks

    @hookimpl
    def draft(self, step: Step) -> None:
        self.private = step.private
        with self._lock:
            self._passed, self._name, self._methods = step.records, step.plugin, step.proposals
            self._preempted = self._learn(self.learner)
            self._plan(step)

    def _learn(self, learner: Learner) -> int:
        """From all steps since the last time; returns how often the processor had been taken away by now."""
        preempted = preemptions()
        learner.pacer.ledger.excused = preempted - self._preempted
        learner.learn(self._passed, self._name, self._methods)
        return preempted

    def _plan(self, step: Step) -> None:
        """What every sequence may draft from now on."""
        offered = [part for part in step.parts if part.budget and part.seq.wants(step.plugin)]
        memories = self._remember(step, offered)
        choice = self.pacer.choice
        choice.longest = max(choice.longest, max((part.budget for part in offered), default=0))
        depth = deepest(step.parts)
        if depth is None:  # rows of a prompt: such a step says nothing about a plain one
            grants: list[Grants] = [()] * len(offered)
        else:
            grants = self.pacer.plan([memory.track for memory in memories], len(step.parts), depth)
            self._order(step, offered, memories)
        for part, memory, granted in zip(offered, memories, grants, strict=True):
            memory.grants = granted
            self._limit(step, part.seq, memory.track.arms, granted)

    def _remember(self, step: Step, offered: list[Part]) -> list[Memory]:
        """What is known of the requests of this step; the others have ended."""
        old = self.learner.memories
        found = self.learner.memories = {
            part.seq.number: old.get(part.seq.number) or self._new(step, part.seq) for part in offered
        }
        for part in offered:  # a request that followed another while a plan held may allow fewer methods
            track = found[part.seq.number].track
            track.arms = tuple(arm for arm in track.arms if part.seq.wants(arm.name))
        return list(found.values())

    def _new(self, step: Step, seq: Sequence) -> Memory:
        names = (name for name, kinds in step.proposals.items() if kinds and seq.wants(name))
        arms = [self.pacer.arm(name) for name in names]
        kept = self.pacer.service.admitted(arms)
        for arm in arms:
            if arm not in kept:
                step.drop(seq, arm.name)
        return Memory(Track(tuple(kept)))

    def _order(self, step: Step, offered: list[Part], memories: list[Memory]) -> None:
        """What the plan says of the steps that follow: nobody drafts for a while, or the same as in this one."""
        plan = self.pacer
        if plan.quiet:
            unwanted = plan.service.unwanted(plan.joining)
            step.rest(plan.quiet, {arm.name for arm in unwanted}, joining=plan.joining)
        elif plan.hold:
            plain, served = plan.machine.plain, memories[0].track.arms
            without = {arm.name for arm in plan.arms.values() if arm not in served}
            said = plan.hold, plan.loss * plain, plain, without, plan.onward, plan.shares
            step.hold(*said, rest=plan.then, unlisted=UNKNOWN)
        for arm in plan.dropped:
            for part, memory in zip(offered, memories, strict=True):
                if arm in memory.track.arms:
                    step.drop(part.seq, arm.name)
                    memory.track.arms = tuple(other for other in memory.track.arms if other is not arm)

    def _limit(self, step: Step, seq: Sequence, arms: tuple[Arm, ...], grants: Grants) -> None:
        if not grants:
            step.limit(seq, 0)
            return
        if len(arms) == 1:
            step.limit(seq, grants[0].length)
            step.set_price(seq, grants[0].price)
            return
        granted = {grant.arm for grant in grants}
        for arm in arms:
            if arm not in granted:
                step.limit(seq, 0, arm.name)
        for grant in grants:
            step.limit(seq, grant.length, grant.arm.name)
            step.set_price(seq, grant.price, grant.arm.name)


def deepest(parts: list[Part]) -> int | None:
    """Positions of the longest sequence; None where rows are of a prompt, not of a text that has begun."""
    depth = 0
    for part in parts:
        if not part.decides or len(part.seq.tokens) == part.seq.prompt_len:
            return None
        if part.start > depth:
            depth = part.start
    return depth
