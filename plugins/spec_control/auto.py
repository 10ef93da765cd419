"""``--control auto``: the method and draft length with the most tokens per time, or plain decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from attrs.setters import NO_OP
from attrs.validators import ge, gt
from spec_costs.file import read as read_costs

from spec_control.arm import Arm
from spec_control.held import Held
from spec_control.ledger import Ledger
from spec_control.log import Log, Made, Memory, deepest, memory_of, standing
from spec_control.pacer import Pacer
from spec_control.track import Grants, Track
from spec_core import Compat, Part, Sequence, Spent, StashKey, Step, hookimpl

TIMED = "the length of drafts follows measured times, and the text of a seed depends on it here: {}"
REPRODUCE = "control=fixed reproduces it"


@attrs.define(eq=False)
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
    memory: StashKey[Memory] = attrs.field(factory=StashKey, init=False)
    pacer: Pacer = attrs.field(init=False)
    exact: str | None = attrs.field(default=None, init=False)
    private: bool = attrs.field(default=False, init=False, on_setattr=NO_OP)
    log: Log = attrs.field(init=False)
    _depth: int | None = attrs.field(default=None, init=False, on_setattr=NO_OP)
    _held: Held = attrs.field(factory=Held, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Any = None) -> None:
        """What is measured is of one run."""
        self.pacer = Pacer(Ledger(self.share, self.balance), longest=1, every=self.plain_every)
        self.log, self._held = Log(self.memory), Held()
        self.exact = None if target is None else target.info.exact
        if self.costs is not None and target is not None:
            found = read_costs(Path(self.costs))
            found.check(target)
            self.pacer.machine.begin_with(found.steps)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=(), load=self._begin, report=self.report)

    def report(self) -> dict[str, Any]:
        """What was chosen, what it gained, and the account, in plain steps."""
        book, ledger = self.pacer.book, self.pacer.ledger
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
        self.private, self.log.controller = step.private, step.asking
        self.log.timed(step)
        if not self._held.holds(step):
            self._plan(step)
        for part in step.parts:
            memory = memory_of(part.seq, self.memory)
            if memory is not None:
                self._limit(step, part.seq, memory.track.arms, memory.grants)

    @hookimpl
    def rollback(self, step: Step) -> None:
        """What was accepted is learned with the next plan, or when a sequence ends, which nothing may outlive."""
        if not step.drafting:
            self.log.timed(step)
            self._held.steps = 0
        elif self._depth is not None:
            self._held.made(step)
            self.log.add(step, self._depth)
        if any(part.seq.finish for part in step.parts):
            self._learn(step)

    def _plan(self, step: Step) -> None:
        """What every sequence may draft from now on."""
        self._learn(step)
        pacer = self.pacer
        offered = [part for part in step.parts if part.budget and part.seq.wants(step.asking)]
        memories = [self._memory(step, part.seq) for part in offered]
        for part in offered:
            if part.budget > pacer.longest:
                pacer.longest = part.budget
        self._depth = deepest(step.parts)
        if self._depth is not None:
            grants = pacer.plan([memory.track for memory in memories], len(step.parts), self._depth)
            self._held.begin(step, pacer)
            self._rest(step, offered, memories)
        else:  # rows of a prompt: such a step says nothing about a plain one
            pacer.rest()
            grants, self._held.steps = [()] * len(offered), 0
        for memory, granted in zip(memories, grants, strict=True):
            memory.grants = granted

    def _rest(self, step: Step, offered: list[Part], memories: list[Memory]) -> None:
        """Nobody drafts for a while; a method that is costly even then no longer serves these sequences."""
        if self.pacer.quiet:
            step.rest(self.pacer.quiet, {arm.name for arm in self.pacer.arms.values() if not self.pacer.admits(arm)})
        for arm in self.pacer.dropped:
            for part, memory in zip(offered, memories, strict=True):
                if arm in memory.track.arms:
                    self._drop(step, part.seq, memory, arm)

    def _drop(self, step: Step, seq: Sequence, memory: Memory, arm: Arm) -> None:
        step.drop(seq, arm.name)
        memory.track.arms = tuple(other for other in memory.track.arms if other is not arm)

    # one sequence

    def _memory(self, step: Step, seq: Sequence) -> Memory:
        found = memory_of(seq, self.memory)
        if found is None:
            names = (name for name, kinds in step.proposals.items() if kinds and seq.wants(name))
            track = Track(tuple(self.pacer.arm(name) for name in names))
            found = seq.stash[self.memory] = Memory(seq.number, track)
            for arm in track.arms:
                if not self.pacer.admits(arm):
                    self._drop(step, seq, found, arm)
        return found

    def _limit(self, step: Step, seq: Sequence, arms: tuple[Arm, ...], grants: Grants) -> None:
        if not grants:
            step.limit(seq, 0)
            return
        if len(arms) == 1:
            step.limit(seq, grants[0].length)
            step.set_price(seq, grants[0].arm.asked_for(grants[0].price))
            return
        granted = {grant.arm for grant in grants}
        for arm in arms:
            if arm not in granted:
                step.limit(seq, 0, arm.name)
        for grant in grants:
            step.limit(seq, grant.length, grant.arm.name)
            step.set_price(seq, grant.arm.asked_for(grant.price), grant.arm.name)

    # what was made

    def _learn(self, step: Step) -> None:
        """From all steps since the last time."""
        for made in self.log.learn(self.pacer):
            if made.done.rows:
                self._settle(step, made)

    def _settle(self, step: Step, made: Made) -> None:
        """A step whose time is known. If nobody drafted, it is the last of the rest that shows what a plain one takes:
        in the first this controller ran, and left its data in the caches.
        """
        done, own, last = made.done, made.own, made.last
        assert own is not None and last is not None
        if done.drafted:
            mine = self._own(own, step)
            self.pacer.settle(done, own.seconds["verify"], own.whole - mine, own=mine)
            return
        passed = last.number - own.number
        if passed:
            self.pacer.planned(own.whole)
        if last.rows != last.sequences:  # the last one evaluated rows of a prompt
            self.pacer.rested(passed)
            return
        took = standing(step, last)
        for name, seconds in took.items() if passed else ():
            self.pacer.arm(name).stands(seconds)
        done.stands, done.batch, done.rows = max(1, passed), last.sequences, last.rows
        done.tokens = done.batch
        mine = self._own(last, step)
        self.pacer.settle(done, last.seconds["verify"], last.whole - mine, sum(took.values()), mine)

    def _own(self, spent: Spent, step: Step) -> float:
        """Seconds of this controller."""
        seconds = spent.seconds
        return seconds.get(f"draft.{step.asking}", 0.0) + seconds.get(f"rollback.{step.asking}", 0.0)
