"""Decides which method drafts how many tokens in a step, from the time and acceptance of earlier steps.

``plan`` plans a step; after the step, ``learn`` records every draft, and ``settle`` the time of the step. Nothing here
reads a clock or a drawn token.
"""

from __future__ import annotations

import attrs

from spec_control.acceptance import tested
from spec_control.arm import Arm
from spec_control.choice import CHANCES, Choice, rejected
from spec_control.hold import CHEAP, bearable, longest, onward
from spec_control.ledger import LARGE, RISK_MIN, Ledger
from spec_control.machine import Costs, Machine
from spec_control.report import Book
from spec_control.schedule import Schedule
from spec_control.service import Service
from spec_control.track import Done, Grants, Track

MEASURING, REPAYING, LOSING = "measuring a plain step", "repaying", "not paying"
"""Why nobody drafts in a step."""
QUIET, SHORT = 1024, 3
"""Steps for which nothing is planned: at most, and at least, so that the last of them is as if nobody ever drafted."""
SLOWER = 4.0
"""A forward that takes so many times as long as before was disturbed: machines do not become as slow within a plan."""
PROBING = 0.5
"""Share of the income that probes may use, while nothing else does."""
OWN, PLANNING = 0.02, 0.2
"""By how much one step changes what the controller is expected to take in one with drafts, and in one without."""


@attrs.define(eq=False)
class Pacer:
    """The controller of a run.

    every: max steps between two plain ones that are measured. choice: which methods draft how many tokens.
    service: which methods serve a sequence. probe: the method that is probed in this step.
    reason: why nobody drafts, empty if somebody may.
    quiet: for how many steps after this one nobody drafts. joining: also for sequences that begin meanwhile.
    hold: for how many steps after this one the plan is used. loss: plain steps that they may lose until then.
    then: plain steps that follow these, the last of which is measured.
    risk: plain steps that one of them loses at most, by what is expected. rows: of a forward without drafts, and with
    all that is granted. shares: by rows of a forward, the part of its time that a plain step takes.
    onward: also for the sequence that follows.
    empty: the ledger was used up, and is repaid. dropped: methods that shall no longer serve these sequences.
    planning: plain steps that a plan for nobody takes. own: plain forwards of the controller in a step with drafts.
    """

    ledger: Ledger = attrs.field(factory=Ledger)
    every: int = 128
    machine: Machine = attrs.field(factory=Machine)
    book: Book = attrs.field(factory=Book)
    arms: dict[str, Arm] = attrs.field(factory=dict)
    choice: Choice = attrs.field(init=False)
    service: Service = attrs.field(init=False)
    probe: Arm | None = None
    reason: str = ""
    steps: int = 0
    quiet: int = 0
    joining: bool = False
    hold: int = 0
    then: int = 0
    loss: float = 0.0
    risk: float = 0.0
    rows: tuple[int, int] = (0, 1)
    shares: dict[int, float] = attrs.field(factory=dict)
    onward: bool = False
    empty: bool = False
    dropped: tuple[Arm, ...] = ()
    planning: float = 0.0
    own: float = 0.0
    schedule: Schedule = attrs.field(factory=Schedule)
    _unprobed: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.service = Service(self.machine, self.ledger, self.arms)
        self.choice = Choice(self.ledger, self.service, every=self.every)

    def arm(self, name: str) -> Arm:
        found = self.arms.get(name)
        if found is None:
            found = self.arms[name] = Arm(name)
        return found

    # before a step

    def plan(self, tracks: list[Track], batch: int, depth: int) -> list[Grants]:
        """For each sequence what its methods may draft, in their order; nothing for a plain step.

        batch: sequences of the step, those that do not draft included. depth: positions of the longest.
        """
        costs = self.machine.at(batch, depth)
        costs.own = self.own
        self.probe, self.quiet, self.hold, self.then, self.joining = None, 0, 0, 0, False
        self.reason = self._forbidden(costs, tracks)
        if not self.reason:
            self.choice.planning = self.planning
            grants = self.choice.grants(costs, tracks)
            if any(grants):
                self._hold(costs, grants)
                self._drop(tracks, grants)
                return grants
            grants = self._probed(costs, tracks)
            if any(grants):
                self.dropped = ()
                return grants
            self.reason = LOSING
            fresh = len(tracks) == 1 and any(map(self.service.fresh, self.arms.values()))
            self.joining = not (fresh or self.choice.hopeful(costs))
            self.quiet = int(min(self.quiet, self.choice.lacks / self.ledger.income))
        self._rest(tracks)
        return [()] * len(tracks)

    def _rest(self, tracks: list[Track]) -> None:
        """Nobody drafts, for a time in which methods that cost much even so are endured, or no longer."""
        serving = {arm for track in tracks for arm in track.arms}
        if self.reason == REPAYING:
            self.joining = self.empty  # otherwise others may be easier
            kept = self.ledger.reserve if self.empty else self._kept(tracks)
            missing = kept + self.planning + RISK_MIN - self.ledger.balance
            self.quiet = min(QUIET, int(missing / self.ledger.income))
        if not serving:
            self.quiet, self.reason = QUIET, LOSING
        self.dropped = self.service.dropped(serving, self.quiet)
        endured = self.service.endured(serving.difference(self.dropped))
        self.quiet = max(SHORT, self.quiet if endured is None else min(self.quiet, endured))

    def _drop(self, tracks: list[Track], grants: list[Grants]) -> None:
        """Methods that cost much though they do not draft, while others do."""
        drafting = {grant.arm for each in grants for grant in each}
        idle = [arm for arm in self.arms.values() if arm not in drafting]
        self.dropped = self.service.dropped(idle) if idle else ()

    def _hold(self, costs: Costs, grants: list[Grants]) -> None:
        """A plan holds the longer, the better its methods are known, while the ledger covers what it may lose."""
        granted, probing = [grant for each in grants for grant in each], self.probe is not None
        self.risk = rejected(costs, granted)
        self.rows = costs.batch, costs.batch + sum(grant.arm.rows(grant.length) for grant in granted)
        self.shares = costs.shares(self.rows[1])
        self.loss = min(bearable(costs, granted, self.risk, self.choice, probing), self.ledger.balance - self.risk)
        if self.loss > 0.0:
            self.hold = min(self.schedule.until - 1, longest(granted, self.choice, probing))
            self.then = SHORT if self.hold and self.schedule.due_after(1 + self.hold) else 0
            self.onward = onward(granted, self.ledger.balance - self.risk - self.loss)

    def _forbidden(self, costs: Costs, tracks: list[Track]) -> str:
        if costs.overhead is None or self.schedule.due or self.steps < 2:
            return MEASURING
        balance = self.ledger.balance
        self.empty = balance <= 0.0 or (self.empty and balance < self.ledger.reserve)
        return REPAYING if self.empty or balance <= self._kept(tracks) else ""

    def _kept(self, tracks: list[Track]) -> float:
        """What these sequences must leave in the ledger, or must be in it before anybody drafts again."""
        if tracks and all(track.loses for track in tracks):
            return self.ledger.kept
        return self.ledger.reserve if self.empty else 0.0

    # probes

    def _probed(self, costs: Costs, tracks: list[Track]) -> list[Grants]:
        """Now and then a short draft of one sequence, paid for by the income of the steps since the last one."""
        grants: list[Grants] = [()] * len(tracks)
        arms = [arm for arm in self.arms.values() if any(arm in track.arms for track in tracks)]
        if len(arms) > 1 and not self.ledger.full:
            arms = [arm for arm in arms if arm.chances]
        if not arms:
            self.quiet = min(QUIET, int(self.ledger.unfilled / self.ledger.income))
            return grants
        free = [arm for arm in arms if self._free(costs, tracks, arm) or self._fresh(tracks, arm)]
        trying = [arm for arm in free if 0 < arm.chances < CHANCES]  # one shows what it brings before the next one
        arm = trying[0] if trying else max(free or arms, key=lambda a: a.since)
        length = self.choice.probe_length(costs, arm)
        missing = self._missing(self.choice.probe_loss(costs, tracks, arm, length), arm in free)
        if missing > 0:
            self.quiet = min(QUIET, int(missing + self.planning / self.ledger.income))
            return grants
        arm.since = 0
        able = [i for i, track in enumerate(tracks) if arm in track.arms]
        grants[self.choice.one_of(tracks, arm, able)] = (self.choice.probe(costs, arm, length),)
        self.probe, self._unprobed = arm, 0.0
        if arm.likely(arm.table(costs, self.choice.longest).times):
            self._hold(costs, grants)
        return grants

    def _missing(self, loss: float, free: bool) -> float:
        """Steps until a probe that may lose so much is paid for."""
        period = 0.0 if free else (loss + self.planning) / (PROBING * self.ledger.income)
        return max(period - self._unprobed, (loss - self.ledger.balance) / self.ledger.income)

    def _free(self, costs: Costs, tracks: list[Track], arm: Arm) -> bool:
        """Whether a probe does not wait for the income: first drafts do not, up to what they may lose together."""
        loss = self.choice.probe_loss(costs, tracks, arm, self.choice.probe_length(costs, arm))
        cheap = loss < CHEAP or not arm.beginning
        return cheap and arm.promises(arm.table(costs, self.choice.longest).times)

    def _fresh(self, tracks: list[Track], arm: Arm) -> bool:
        """It may show in a sequence that begins what it could not in others; several at once have shown it."""
        if len(tracks) > 1 or not self.service.fresh(arm):
            return False
        return all(arm in track.arms and track.lost < CHEAP for track in tracks)

    # after a step

    def learn(self, track: Track, arm: Arm, rows: int, depth: int, accepted: int, granted: int) -> None:
        """A draft was judged. rows: its tokens. depth: of its longest path. accepted: before stops and limits.

        granted: tokens that it might have had.
        """
        judged = tested(depth, accepted)
        rate = track.rating(arm)
        rate.learn(judged, accepted)
        track.whole = track.whole + 1 if accepted == depth else 0
        if self.probe is arm:
            if track.whole:
                rate.trust()
                self._unprobed = float("inf")
            self.book.of(arm.name).probes += 1
        arm.shape.learn_rate(judged, accepted)
        arm.shape.learn(judged, accepted)
        arm.branched(rows, depth)
        arm.ended(depth, granted)
        arm.stopped(rows == depth < granted, rows == accepted < granted)
        lengths = self.book.of(arm.name).lengths
        lengths[depth] = lengths.get(depth, 0) + 1

    def planned(self, whole: float) -> None:
        """A plain step in which this controller planned took so many seconds: more than plain ones do, for no draft."""
        if self.machine.plain:
            spent = whole / self.machine.plain
            self.book.step(1.0, spent, 1, self.reason)
            more = min(LARGE, max(0.0, spent - 1.0))
            self.planning += (PLANNING if self.planning else 1.0) * (more - self.planning)
            self.ledger.settle(1.0, spent - self.ledger.forgive(spent - 1.0))

    def ended(self) -> None:
        """What was held is over, and the plain steps follow that are measured."""
        self.reason, self.probe = MEASURING, None

    def rested(self, steps: int) -> None:
        """So many plain steps are over whose time is not known."""
        self.ledger.settle(steps, steps)
        self.book.step(steps, steps, steps, self.reason)
        self._over(True, steps)

    def settle(
        self, done: Done, forward: float, whole: float, others: float = 0.0, own: float = 0.0, usual: bool = True
    ) -> tuple[float, float]:
        """A step is over. forward, whole: seconds of the forward, and of all but this controller.

        others: of a plain step, seconds that it would not have taken in a run without methods.
        own: seconds of this controller, which are paid for, but are no cost of the draft.
        usual: it took as long as others like it; one in which the controller planned does not, if it seldom does.
        Returns tokens of each sequence, on average, and time in plain steps, without what first drafts for sequences
        took beyond others: it is spent, and says nothing of those that follow.
        """
        self.steps += 1
        if self.steps == 1:
            return 1.0, 1.0  # the first forward warms caches up
        batch, times = done.batch, done.stands
        costs = self.machine.at(batch, done.depth)
        if usual or not self.machine.plain:
            plain = self.machine.measured(costs, done.rows, forward, whole - others - forward, times)
        else:
            plain = self.machine.expected(costs, done.rows, forward)
        spent, each = times * whole / plain, times * done.tokens / batch
        self.book.step(each, spent + own / plain, times, self.reason)
        forgiven = self._forgiven(costs, done, spent) if done.drafted and spent > 1.0 + LARGE else 0.0
        begun = self._began(done, spent) if done.drafted and done.cold else 0.0
        spent -= forgiven
        self.ledger.settle(each, spent + own / plain - self.ledger.forgive(own / plain))
        self._over(done.rows == batch, times)
        if self.probe is not None:
            self.probe.lost += own / plain + (0.0 if done.drafted else spent - each)
        if done.drafted:
            aside = (whole - forward) / self.machine.forward
            self._used(done, spent, each, aside if usual and not forgiven else None)
            self.own += OWN * (own / self.machine.forward - self.own)
        return each, spent + own / plain - max(0.0, begun - forgiven)

    def _forgiven(self, costs: Costs, done: Done, spent: float) -> float:
        """Of a step that was disturbed: what it took beyond what was expected."""
        lengths = {arm: max(1, round(length / done.batch)) for arm, length in done.drafted.items()}
        more = sum((arm.time(costs, length) - 1.0 for arm, length in lengths.items()), 0.0)
        more += done.cold * sum(arm.beginning for arm in lengths)
        return self.ledger.forgive(spent - 1.0 - more, excusable=not done.cold)

    def _began(self, done: Done, spent: float) -> float:
        """First drafts for sequences, which take longer, as their method catches up; by how many plain steps."""
        if len(done.drafted) != 1:
            return 0.0
        arm, length = next(iter(done.drafted.items()))
        costs = self.machine.costs(done.batch, done.depth)
        return self.began(costs, arm, max(1, round(length / done.batch)), spent, done.cold)

    def began(self, costs: Costs, arm: Arm, length: int, spent: float, sequences: int = 1) -> float:
        """A step with the first draft of a method for so many sequences; by how many plain steps it took longer."""
        excess = spent - arm.time(costs, length)
        arm.began(excess / sequences)
        return max(0.0, excess)

    def _used(self, done: Done, spent: float, each: float, aside: float | None) -> None:
        """By methods that drafted; a cost is learned where one drafted alone and had nothing to catch up on."""
        if len(done.drafted) == 1 and not done.cold:
            arm, length = next(iter(done.drafted.items()))
            arm.drafted(done.batch, max(1, round(length / done.batch)), aside)
        many = len(done.drafted)
        for arm in done.drafted:
            self.gained(None if done.cold else done.track, arm, 1, each, spent, many)

    def gained(self, track: Track | None, arm: Arm, steps: int, tokens: float, spent: float, many: float = 1) -> None:
        """A method drafted in so many steps. spent: their time in plain steps. many: methods that drafted in them."""
        arm.since = 0
        gain = arm.gained(tokens, spent, steps)
        if track is not None:
            track.gained(arm, gain, steps)
        used = self.book.of(arm.name)
        used.steps += steps
        used.spent += spent / many
        used.tokens += tokens / many

    def gained_all(self, track: Track | None, arm: Arm, steps: int, tokens: float, spent: float, many: float) -> None:
        """Steps of a plan that holds, whose costs were not measured."""
        arm.steps += steps
        self.gained(track, arm, steps, tokens, spent, many)

    def charged(self, rows: int, whole: float, plain: float, begins: float | None = None) -> tuple[float, bool]:
        """Plain steps that a step of a plan that holds is charged with, and whether it was disturbed.

        rows: of its forward. plain: seconds, by this forward. Of one that was disturbed, what was expected counts.
        begins: of the first draft for a sequence, plain steps that it is expected to take beside what others take.
        """
        slow = plain > SLOWER * self.machine.plain  # the forward itself was disturbed
        spent = whole / (self.machine.plain if slow else plain)
        fewest, most = self.rows
        expected = 1.0 + self.risk * min(1.0, (rows - fewest) / (most - fewest)) + (begins or 0.0)
        if spent < expected + LARGE:
            return spent, slow
        return spent - self.ledger.forgive(spent - expected, excusable=begins is None), True

    def held(self, made: list[tuple[float, float]], plain: int, own: float, compared: bool) -> None:
        """Steps of a plan that holds are over, so many of them plain. made: tokens and time of each, as in ``Sums``.

        own: seconds of this controller. compared: with enough plain ones among them, so that none need be measured.
        """
        tokens, spent = map(sum, zip(*made, strict=True))
        steps = len(made)
        self.steps += steps
        mine = own / self.machine.plain
        self.book.step(tokens, spent + mine, steps, self.reason)
        self.ledger.settle(0.0, mine - self.ledger.forgive(mine))
        self.ledger.settle_all(made)
        drafted = steps - plain
        if drafted:
            share = 1.0 - (1.0 - OWN) ** drafted
            self.own += share * (own / (self.machine.forward * drafted) - self.own)
        if self.probe is not None:
            self.probe.lost += mine
            self.book.of(self.probe.name).probes += drafted
            if tokens > spent:
                self._unprobed = float("inf")
        self._over(compared, steps)

    def learn_all(self, track: Track, arm: Arm, tested: int, accepted: int, lengths: dict[int, int]) -> None:
        """Of several drafts, as sums. lengths: {tokens: drafts}."""
        track.rating(arm).learn_all(tested, accepted)
        arm.shape.learn_rate(tested, accepted)
        known = self.book.of(arm.name).lengths
        for depth, times in lengths.items():
            known[depth] = known.get(depth, 0) + times

    def _over(self, plain: bool, times: int) -> None:
        """So many steps are over, with drafts or plain."""
        self._unprobed += times
        for arm in self.arms.values():
            arm.since += times
        apart = int((1 + SHORT) * self.choice.gain / self.ledger.income)
        self.schedule.passed(plain, self.machine.surprised, apart, self.every, times)
        self.machine.surprised = False
