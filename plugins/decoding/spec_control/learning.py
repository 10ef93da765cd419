"""What the controller learns from the steps that are over, all that were made since it was called last at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from statistics import median

import attrs

from spec_control.acceptance import tested
from spec_control.arm import WARM, Arm
from spec_control.ledger import LARGE
from spec_control.machine import Costs
from spec_control.pacer import SLOWER, Pacer
from spec_control.sums import Drafts, Sums
from spec_control.track import Done, Grants, Track
from spec_core import DraftAttempt, StepRecord

USUAL = 4
"""Lengths of drafts whose costs are learned from the steps of one plan, those that were most often."""
UNUSUAL = 1.0 + LARGE
"""Plain steps from which on one without a draft was disturbed."""


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

    def learn(self, passed: Iterable[StepRecord], controller: str, methods: Mapping[str, frozenset[str]]) -> None:
        """controller: its name in the run. methods: {plugin: kinds of proposal}; those without any are no methods."""
        fresh = [spent for spent in passed if spent.number > self.upto]
        made = [spent for spent in fresh if not spent.resting]
        if made:
            if len(made) < len(fresh) and not self.pacer.then:
                self.pacer.planned(made[0].total_seconds)
            else:
                self._planned(made, methods, controller, alone=len(fresh) == 1)
            self.upto = made[-1].number
        if fresh and fresh[-1].resting:
            if self.pacer.then:
                self.pacer.ended()
            self._rested(fresh[-2:], methods, fresh[-1].number - self.upto)
            self.upto = fresh[-1].number

    def _planned(
        self, steps: list[StepRecord], methods: Mapping[str, frozenset[str]], controller: str, alone: bool
    ) -> None:
        """The step in which the controller planned, and those in which its plan held. alone: no step followed."""
        first, own = steps[0], seconds_of(steps[0], controller)
        if alone or self._begins(first):
            self._made(first, methods, own, usual=alone)
            steps, own = steps[1:], 0.0
        if steps:
            self._held(steps, own)

    def _begins(self, spent: StepRecord) -> bool:
        """A method drafted for a sequence for the first time, or may have: such a step is like no other."""
        memories = [self.memories.get(tried.number) for tried in spent.attempts]
        return spent.depth is None or any(
            memory is None or tried.method not in memory.track.rates
            for memory, tried in zip(memories, spent.attempts, strict=True)
        )

    def _rested(self, ends: list[StepRecord], methods: Mapping[str, frozenset[str]], steps: int) -> None:
        """Of a rest its last step shows what a plain one takes: it is as in a run without a controller.

        The one before it counts if it was faster: a forward that was disturbed would make all others seem cheap.
        What methods took in it stands for so many steps that only their usual time counts.
        """
        last = ends[-1]
        if last.rows != last.sequences or last.depth is None:
            self.pacer.rested(steps)
            return
        plain = min((s for s in ends if s.resting and s.rows == last.rows), key=lambda s: s.seconds["verify"])
        measured = self._standing(plain, methods, ())
        others = min(measured, sum(self.pacer.arm(name).standing for name in methods_of(plain, methods)))
        done = Done(last.sequences, last.depth, last.rows, last.sequences, {}, 0, steps)
        self.pacer.settle(done, plain.seconds["verify"], plain.total_seconds - measured + others, others)

    def _standing(self, spent: StepRecord, methods: Mapping[str, frozenset[str]], drafted: Collection[Arm]) -> float:
        """Seconds of methods that drafted nothing: a run without methods has none of them."""
        whole, stood = 0.0, dict[str, float]()
        for label, seconds in spent.seconds.items():
            hook, _, name = label.partition(".")
            if methods.get(name):
                whole += seconds
                stood[name] = stood.get(name, 0.0) + (seconds if hook != "draft" else 0.0)
        serving = {arm for memory in self.memories.values() for arm in memory.track.arms}
        for arm in serving.difference(drafted):
            arm.stood(stood.get(arm.name, 0.0))
        return whole

    def _made(self, spent: StepRecord, methods: Mapping[str, frozenset[str]], own: float, usual: bool) -> None:
        """A step in which somebody might draft, after the controller has planned."""
        done = self._judged(spent)
        if done is None:
            return
        others = self._standing(spent, methods, done.drafted)
        usual = usual and bool(done.drafted)
        others = 0.0 if done.drafted else others
        made = self.pacer.settle(done, spent.seconds["verify"], spent.total_seconds - own, others, own, usual)
        if any(memory.grants for memory in self.memories.values()):
            self._settled([spent], [made], 0.0)

    def _held(self, steps: list[StepRecord], own: float) -> None:
        """Steps of a plan that holds. own: seconds of the controller, which planned in the first."""
        pacer, machine, sums = self.pacer, self.pacer.machine, Sums()
        costs = machine.at(steps[0].sequences, steps[0].depth or 0)
        firsts = self._follow(steps)
        texts = self._charged(costs, steps, own, sums, firsts)
        for tried in steps[0].attempts:
            pacer.arm(tried.method).priced = tried.method in steps[0].priced
        compared = bool(sums.forwards) and pacer.machine.held(costs, sums.forwards)
        pacer.held(sums.steps, sums.plain, own, compared)
        self._beside(costs, sums)
        self._idle(costs, sums)
        for (number, method), drafts in sums.drafts.items():
            self._drafts(self.memories[number].track, pacer.arm(method), drafts)
        track = next(iter(self.memories.values())).track if len(self.memories) == 1 else None
        for method, gain in sums.gains.items():
            pacer.gained_all(track, pacer.arm(method), gain.steps, gain.tokens, gain.spent, gain.many)
        self._offers(sums, costs.batch)
        self._settled(steps, texts, own / machine.plain, firsts)

    def _charged(
        self, costs: Costs, steps: list[StepRecord], own: float, sums: Sums, firsts: dict[int, Arm]
    ) -> list[tuple[float, float]]:
        """Add the steps of a plan up; returns the tokens and time of each without what first drafts for texts took."""
        machine, shares = self.pacer.machine, self.pacer.shares
        slow = SLOWER * machine.plain
        for i, spent in enumerate(steps):
            share = shares.get(spent.rows)
            plain = machine.plain if share is None else share * spent.seconds["verify"]
            planned = own > 0.0 and i == 0
            if spent.attempts or planned or spent.total_seconds >= UNUSUAL * plain or plain > slow:
                whole = spent.total_seconds - own if planned else spent.total_seconds
                begins = firsts[i].beginning if i in firsts else None
                charged, disturbed = self.pacer.charged(spent.rows, whole, plain, begins)
                sums.add(spent, whole, charged, usual=not (planned or disturbed or i in firsts))
            else:  # as most steps are where drafts are rare; ``charged`` would say the same, and takes longer
                sums.add_plain(spent, spent.total_seconds, spent.total_seconds / plain)
        texts = [*sums.steps]
        for i, arm in firsts.items():
            tokens, charged = texts[i]
            texts[i] = tokens, charged - self._began(costs, arm, steps[i], charged)
        return texts

    def _began(self, costs: Costs, arm: Arm, spent: StepRecord, charged: float) -> float:
        """By how much a first draft took longer than others, in plain steps; not known beside drafts of another."""
        if any(tried.method != arm.name for tried in spent.attempts):
            return 0.0
        length = round(sum(tried.depth for tried in spent.attempts) / spent.sequences)
        return self.pacer.began(costs, arm, max(1, length), charged)

    def _settled(
        self, steps: list[StepRecord], made: list[tuple[float, float]], own: float, firsts: Iterable[int] = ()
    ) -> None:
        """What was lost in the texts of a plan; in one that followed another, from its first draft on.

        made, own: tokens and time of each step, and of the controller, in plain steps. firsts: as of ``_follow``.
        """
        if len(self.memories) <= steps[0].sequences:
            for memory in self.memories.values():
                memory.track.settled(made, own)
        elif self.memories:
            number, memory = next(reversed(self.memories.items()))
            began = (i for i in firsts if any(tried.number == number for tried in steps[i].attempts))
            memory.track.settled(made[next(began, len(made)) :], 0.0)

    def _beside(self, costs: Costs, sums: Sums) -> None:
        """Time beside the forward, of methods that had nothing to catch up on."""
        usual = sorted(sums.beside, key=lambda key: len(sums.beside[key]))[-USUAL:]
        for method, length in usual:
            arm = self.pacer.arm(method)
            seconds = sums.beside[method, length][max(0, WARM - arm.steps) :]
            if seconds:
                arm.took(costs.batch, length, median(seconds) / self.pacer.machine.forward, len(seconds))

    def _idle(self, costs: Costs, sums: Sums) -> None:
        """What methods cost that were asked and offered nothing."""
        arms = {grant.arm for memory in self.memories.values() for grant in memory.grants}
        if sums.idle and arms and costs.overhead is not None:
            more = median(sums.idle) / self.pacer.machine.forward - costs.overhead
            for arm in arms:
                arm.idled(costs.batch, more / (1.0 + costs.overhead) / len(arms))

    def _drafts(self, track: Track, arm: Arm, drafts: Drafts) -> None:
        self.pacer.learn_all(track, arm, drafts.tested, drafts.accepted, drafts.lengths)
        arm.stopped(drafts.stopped, drafts.whole)
        for tried in drafts.sample:
            accepted = tried.accepted or 0
            arm.shape.learn(tested(tried.depth, accepted), accepted)
            arm.branched(tried.drafted, tried.depth)
            arm.ended(tried.depth, tried.budget)

    def _follow(self, steps: list[StepRecord]) -> dict[int, Arm]:
        """Of a request that followed another while its plan held, the same is known to begin with.

        Returns first drafts for a sequence: {index of the step: the method that drafted}.
        """
        last, firsts = next(reversed(self.memories.values())), dict[int, Arm]()
        begun = {(number, method) for number, memory in self.memories.items() for method in memory.track.rates}
        for i, spent in enumerate(steps):
            for tried in spent.attempts:
                if (tried.number, tried.method) not in begun:
                    begun.add((tried.number, tried.method))
                    firsts[i] = self.pacer.arm(tried.method)
                    if tried.number not in self.memories:
                        self.memories[tried.number] = Memory(Track(last.track.arms), last.grants)
        return firsts

    def _offers(self, sums: Sums, batch: int) -> None:
        """How often methods drafted of those times that they might: all, or where those before them did not."""
        for number, memory in [*self.memories.items()][:batch]:  # the others followed
            asked = len(sums.steps)
            for grant in memory.grants:
                if asked > 0:
                    offered = min(asked, sums.drafted(grant.arm.name, None if batch == 1 else number))
                    grant.arm.asked(offered / asked, asked)
                    asked -= offered

    def _judged(self, spent: StepRecord) -> Done | None:
        """Learn what was accepted. None where the time says nothing: rows of a prompt, or drafts without control."""
        if spent.depth is None:
            return None
        done = Done(spent.sequences, spent.depth, spent.rows, spent.tokens, {}, 0, 1)
        drafted: dict[int, set[Arm]] = {}
        for tried in spent.attempts:
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
        if spent.sequences == 1 and spent.attempts:
            done.track = self.memories[spent.attempts[0].number].track
        return done

    def _tried(self, tried: DraftAttempt, arm: Arm, memory: Memory, done: Done) -> None:
        done.cold += arm.name not in memory.track.rates
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


def methods_of(spent: StepRecord, methods: Mapping[str, frozenset[str]]) -> set[str]:
    """Methods whose hooks were called in a step."""
    names = (label.partition(".")[2] for label in spent.seconds)
    return {name for name in names if methods.get(name)}


def seconds_of(spent: StepRecord, plugin: str) -> float:
    """What the hooks of a plugin took."""
    return spent.seconds.get(f"draft.{plugin}", 0.0)
