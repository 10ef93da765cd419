"""What the controller learns from the steps that are over, all that were made since it was called last at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs

from spec_control.arm import Arm
from spec_control.pacer import Pacer
from spec_control.track import Done, Grants, Track
from spec_core import Spent, Tried

MEASURED = 8
"""Steps of one plan whose costs are learned, its first; of the others, only what was accepted and what it gained."""


@attrs.define
class Memory:
    """Of a request. grants: what may be drafted for it at the moment."""

    track: Track
    grants: Grants = ()


@attrs.define(eq=False)
class Learner:
    """memories: {number of a request that runs: what is known of it}. upto: the last step that was learned from."""

    pacer: Pacer
    memories: dict[int, Memory] = attrs.field(factory=dict)
    upto: int = -1

    def learn(self, passed: Iterable[Spent], controller: str, methods: Mapping[str, frozenset[str]]) -> None:
        """controller: its name in the run. methods: {plugin: kinds of proposal}; those without any are no methods."""
        fresh = [spent for spent in passed if spent.number > self.upto]
        planned: Spent | None = None
        for i, spent in enumerate(fresh):
            own = seconds_of(spent, controller)
            following = fresh[i + 1] if i + 1 < len(fresh) else None
            if spent.resting:
                self._rested(spent, methods, spent.number - self.upto)
            elif following is not None and following.resting:
                planned = spent
            else:
                self._made(spent, methods, own, i < MEASURED)
            if planned is spent:
                self.pacer.planned(spent.whole)
            self.upto = spent.number

    def _rested(self, last: Spent, methods: Mapping[str, frozenset[str]], steps: int) -> None:
        """Of a rest its last step shows what a plain one takes: it is as in a run without a controller."""
        if last.rows != last.sequences or last.depth is None:
            self.pacer.rested(steps)
            return
        others = self._standing(last, methods, ())
        done = Done(last.sequences, last.depth, last.rows, last.sequences, {}, False, steps)
        self.pacer.settle(done, last.seconds["verify"], last.whole, others)

    def _standing(self, spent: Spent, methods: Mapping[str, frozenset[str]], drafted: Collection[Arm]) -> float:
        """Seconds of methods that drafted nothing: a run without methods has none of them."""
        whole, stood = 0.0, dict[str, float]()
        for label, seconds in spent.seconds.items():
            hook, _, name = label.partition(".")
            if methods.get(name):
                whole += seconds
                stood[name] = stood.get(name, 0.0) + (seconds if hook != "draft" else 0.0)
        for name, seconds in stood.items():
            arm = self.pacer.arm(name)
            if arm not in drafted:
                arm.stood(seconds)
        return whole

    def _made(self, spent: Spent, methods: Mapping[str, frozenset[str]], own: float, measured: bool) -> None:
        """A step in which somebody might draft."""
        done = self._judged(spent)
        if done is None:
            return
        others = self._standing(spent, methods, done.drafted) if measured else 0.0
        if done.drafted:
            others = 0.0
        self.pacer.settle(done, spent.seconds["verify"], spent.whole - own, others, own, measured)

    def _judged(self, spent: Spent) -> Done | None:
        """Learn what was accepted. None where the time says nothing: with rows of a prompt, or drafts without control."""
        if spent.depth is None:
            return None
        done = Done(spent.sequences, spent.depth, spent.rows, spent.tokens, {}, False, 1)
        drafted: dict[int, set[Arm]] = {}
        for tried in spent.tried:
            memory = self.memories.get(tried.number)
            if memory is None:
                return None
            arm = self.pacer.arm(tried.method)
            drafted.setdefault(tried.number, set()).add(arm)
            self._tried(tried, arm, memory, done)
            arm.priced = tried.method in spent.priced
        for number, memory in self.memories.items():
            if memory.grants:
                offered(memory.grants, drafted.get(number, ()))
        if spent.sequences == 1 and spent.tried:
            done.track = self.memories[spent.tried[0].number].track
        return done

    def _tried(self, tried: Tried, arm: Arm, memory: Memory, done: Done) -> None:
        done.cold |= arm.name not in memory.track.rates
        done.drafted[arm] = done.drafted.get(arm, 0) + tried.depth
        if tried.accepted is not None:
            self.pacer.learn(memory.track, arm, tried.drafted, tried.depth, tried.accepted, tried.budget)


def offered(grants: Grants, drafted: Iterable[Arm]) -> None:
    """Who drafted of those that might; methods after the first that did may not have been asked."""
    begun = False
    for grant in grants:
        mine = grant.arm in drafted
        if mine or not begun:
            grant.arm.asked(mine)
        begun = begun or mine


def seconds_of(spent: Spent, plugin: str) -> float:
    """What the hooks of a plugin took."""
    return spent.seconds.get(f"draft.{plugin}", 0.0)
