"""``--control auto``: the method and draft length with the most tokens per time, or plain decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs.setters import NO_OP
from attrs.validators import ge, gt
from spec_costs.file import read as read_costs

from spec_control.arm import Arm
from spec_control.ledger import Ledger
from spec_control.pacer import Done, Grant, Grants, Pacer, Track
from spec_core import Compat, Part, Piece, Sequence, StashKey, Step, hookimpl

TIMED = "the length of drafts follows measured times, and the text of a seed depends on it here: {}"
REPRODUCE = "control=fixed reproduces it"


@attrs.define
class Memory:
    """Of one sequence. number: the request's, since a slot outlives it. grants: what was allowed in this step."""

    number: int
    track: Track
    grants: Grants = ()


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
    _done: Done | None = attrs.field(default=None, init=False, on_setattr=NO_OP)
    _resting: int = attrs.field(default=0, init=False, on_setattr=NO_OP)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Any = None) -> None:
        """What is measured is of one run."""
        self.pacer = Pacer(Ledger(self.share, self.balance), longest=1, every=self.plain_every)
        self._done, self._resting = None, 0
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
        self.private = step.private
        self._settle(step)
        offered = [part for part in step.parts if part.budget and part.seq.wants(step.asking)]
        memories = [self._memory(step, part.seq) for part in offered]
        for part in offered:
            if part.budget > self.pacer.longest:
                self.pacer.longest = part.budget
        if (depth := deepest(step.parts)) is not None:
            grants = self.pacer.plan([memory.track for memory in memories], len(step.parts), depth)
            self._rest(step, offered, memories)
        else:  # rows of a prompt: such a step says nothing about a plain one
            self.pacer.rest()
            grants = [()] * len(offered)
        for part, memory, granted in zip(offered, memories, grants, strict=True):
            memory.grants = granted
            self._limit(step, part.seq, memory.track.arms, granted)

    @hookimpl
    def rollback(self, step: Step) -> None:
        """What was accepted is learned at once; what the step took is known in the next one."""
        if not step.drafting:
            self._settle(step)
            self.pacer.rest()
        if (depth := deepest(step.parts)) is None or freely_drafted(step):
            return
        done = Done(step.number, len(step.parts), depth, step.rows["target"], 0, {}, False, 1)
        for part in step.parts:
            done.tokens += len(part.emitted)
            if part.draft is not None and part.uncut is not None:
                self._learn(part, step.priced, done)
            elif part.budget:
                self._missed(part)
        self._done = done

    def _rest(self, step: Step, offered: list[Part], memories: list[Memory]) -> None:
        """Nobody drafts for a while; a method that is costly even then no longer serves these sequences."""
        self._resting = self.pacer.quiet
        if self._resting:
            step.rest(self._resting)
        for arm in self.pacer.dropped:
            for part, memory in zip(offered, memories, strict=True):
                if arm in memory.track.arms:
                    self._drop(step, part.seq, memory, arm)

    def _drop(self, step: Step, seq: Sequence, memory: Memory, arm: Arm) -> None:
        step.drop(seq, arm.name)
        memory.track.arms = tuple(other for other in memory.track.arms if other is not arm)

    # one sequence

    def _memory(self, step: Step, seq: Sequence) -> Memory:
        found = seq.stash.get(self.memory)
        if found is None or found.number != seq.number:
            names = (name for name, kinds in step.proposals.items() if kinds and seq.wants(name))
            track = Track(tuple(self.pacer.arm(name) for name in names), left=seq.max_tokens)
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
            step.set_price(seq, grants[0].price)
            return
        granted = {grant.arm for grant in grants}
        for arm in arms:
            if arm not in granted:
                step.limit(seq, 0, arm.name)
        for grant in grants:
            step.limit(seq, grant.length, grant.arm.name)
            step.set_price(seq, grant.price, grant.arm.name)

    def _learn(self, part: Part, priced: set[str], done: Done) -> None:
        """Each method learns from its own piece of the draft; methods after the first piece may not have been asked."""
        memory, begun = part.seq.stash[self.memory], False
        for grant in memory.grants:
            piece = next((piece for piece in part.pieces if piece.source == grant.arm.name), None)
            if piece is not None:
                self._judged(memory, grant, part, piece, done)
                grant.arm.priced = grant.arm.name in priced
            if piece is not None or not begun:
                grant.arm.asked(piece is not None)
            begun = begun or piece is not None

    def _judged(self, memory: Memory, grant: Grant, part: Part, piece: Piece, done: Done) -> None:
        """Learn what was accepted of a piece, unless the token before it was rejected: then it was not tested."""
        arm, draft, uncut = grant.arm, piece.draft, part.uncut
        assert uncut is not None
        rows = len(draft.ids)
        depth = rows if draft.parents is None else deepest_path(draft.parents)
        done.cold |= arm.name not in memory.track.rates
        done.drafted[arm] = done.drafted.get(arm, 0) + depth
        if piece.reached(uncut.path):
            granted = min(grant.length, part.budget)
            self.pacer.learn(memory.track, arm, rows, depth, len(piece.own(uncut.path)), granted)

    def _missed(self, part: Part) -> None:
        """Methods that might draft and did not."""
        memory = part.seq.stash.get(self.memory)
        for grant in memory.grants if memory else ():
            grant.arm.asked(False)

    # the clock

    def _settle(self, step: Step) -> None:
        """The step before, now that its time is known; it stands for all since the last call if nobody drafted."""
        done, before, rested = self._done, step.before, self._resting
        if done is None:
            return
        self._done, self._resting = None, 0
        if before is None or before.number < done.number:
            return  # it was not brought to its end
        passed = before.number - done.number
        if passed not in (0, rested):  # another sequence joined or left: the last step is not like the first
            self.pacer.rested(min(passed, rested))
            return
        done.stands += passed
        others = 0.0 if done.drafted else self._standing(step, before.seconds, learn=passed > 0)
        self.pacer.settle(done, before.seconds["verify"], before.whole, others)

    def _standing(self, step: Step, seconds: Mapping[str, float], learn: bool) -> float:
        """Seconds of a plain step that methods and this controller took: a run without methods has none of it.

        learn: it was a step of a rest, which shows what each method costs though it does not draft.
        """
        whole = 0.0
        took: dict[str, float] = {}
        for label, spent in seconds.items():
            name = label.partition(".")[2]
            if name == step.asking or step.proposals.get(name):
                whole += spent
                took[name] = took.get(name, 0.0) + spent
        if learn:
            for name, arm in self.pacer.arms.items():
                arm.stands(took.get(name, 0.0))
        return whole


def deepest(parts: list[Part]) -> int | None:
    """Positions of the longest sequence; None where rows are of a prompt, not of a text that has begun."""
    depth = 0
    for part in parts:
        if not part.decides or len(part.seq.tokens) == part.seq.prompt_len:
            return None
        if part.start > depth:
            depth = part.start
    return depth


def freely_drafted(step: Step) -> bool:
    """Whether a request that wants no control has a draft: the time of such a step says nothing about a plan."""
    return any(part.draft is not None and not part.seq.wants(step.asking) for part in step.parts)


def deepest_path(parents: Iterable[int]) -> int:
    """Tokens of the longest path of a tree."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths)
