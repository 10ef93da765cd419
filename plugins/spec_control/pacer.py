"""Decides which method drafts how many tokens in a step, from the time and acceptance of earlier steps.

``plan`` plans a step; after the step, ``learn`` records every draft, and ``settle`` the time of the step. Nothing here
reads a clock or a drawn token.
"""

from __future__ import annotations

import attrs

from spec_control.acceptance import GRAIN, Rate, surviving
from spec_control.arm import TRIALS, Arm, Forecast, Table
from spec_control.ledger import LARGE, RISK_MIN, Ledger
from spec_control.machine import Costs, Machine
from spec_control.report import Book
from spec_control.schedule import Schedule
from spec_control.service import Service
from spec_control.track import Done, Grant, Grants, Track

MEASURING, REPAYING, LOSING = "measuring a plain step", "repaying", "not paying"
"""Why nobody drafts in a step."""
PROBE = 2
WHOLE = 3
"""Drafts accepted whole, one after the other, after which a longer one is tried."""
QUIET, SHORT = 1024, 1
"""Steps for which nothing is planned: at most, and at least, so that the last of them is as if nobody ever drafted."""
HOLD, BRIEF, YOUNG = 64, 8, 32
"""Steps for which a plan holds at most, and a quarter of those that its methods might draft in; also where one of them is
new, or the ledger allows only shorter drafts, but will allow more; and steps after which a method is known."""
LOST = 2.0
"""Drafts that are wholly rejected, after which a plan does not hold any more."""
CHANCES = 12
"""Steps in which a method might draft before the next new one may."""
TRUSTED = 2.0
"""By how much more a step may lose whose method stops by the price, and has gained in this sequence."""
RESERVE = 4.0
"""Plain steps of the ledger that are kept for sequences that begin: others may be easier than one that does not pay."""
PAYS = 1.01
"""Tokens per plain step of a method that pays, but is not expected to by its rate."""
OWN = 0.02
"""By how much one step changes what the controller is expected to take."""
CHEAP = 0.05
"""Time beside the forward, in plain steps, up to which a method is asked though another is expected to be better."""


@attrs.define(eq=False)
class Pacer:
    """The controller of a run.

    longest: max tokens of a draft. every: max steps between two plain ones that are measured.
    service: which methods serve a sequence. probe: the method that is probed in this step.
    reason: why nobody drafts, empty if somebody may.
    quiet: for how many steps after this one nobody drafts. joining: also for sequences that begin meanwhile.
    hold: for how many steps after this one the plan is used. loss: plain steps that they may lose until then.
    dropped: methods that shall no longer serve these sequences.
    planning: plain steps that a plan for nobody takes. own: plain forwards of the controller in a step with drafts.
    """

    ledger: Ledger = attrs.field(factory=Ledger)
    longest: int = 16
    every: int = 128
    machine: Machine = attrs.field(factory=Machine)
    book: Book = attrs.field(factory=Book)
    arms: dict[str, Arm] = attrs.field(factory=dict)
    service: Service = attrs.field(init=False)
    probe: Arm | None = None
    reason: str = ""
    steps: int = 0
    quiet: int = 0
    joining: bool = False
    hold: int = 0
    loss: float = 0.0
    dropped: tuple[Arm, ...] = ()
    planning: float = 0.0
    own: float = 0.0
    schedule: Schedule = attrs.field(factory=Schedule)
    _gain: float = 0.0
    _unprobed: float = 0.0
    _turn: int = 0
    _cut: bool = False

    def __attrs_post_init__(self) -> None:
        self.service = Service(self.machine, self.ledger, self.arms)

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
        costs = self.machine.costs(batch, depth)
        costs.own = self.own
        self.probe, self.quiet, self.hold, self.joining, self._cut = None, 0, 0, False, False
        self.reason = self._forbidden(costs, tracks)
        if not self.reason:
            grants = self._grants(costs, tracks)
            if any(grants):
                self._hold(costs, grants)
                self._drop(tracks, grants)
                return grants
            grants = self._probed(costs, tracks)
            if any(grants):
                self.dropped = ()
                return grants
            self.reason = LOSING
        self._rest(tracks)
        return [()] * len(tracks)

    def _rest(self, tracks: list[Track]) -> None:
        """Nobody drafts, for a time in which methods that cost much even so are endured, or no longer."""
        serving = {arm for track in tracks for arm in track.arms}
        repaying = self.reason == REPAYING
        if repaying:
            missing = self._kept(tracks) + self.planning + RISK_MIN - self.ledger.balance
            self.quiet = min(QUIET, int(missing / self.ledger.income))
            self.joining = self.ledger.balance <= 0.0
        if not serving:
            self.quiet, self.reason = QUIET, LOSING
        self.dropped = self.service.dropped(serving, self.quiet if repaying else 0)
        endured = self.service.endured(serving.difference(self.dropped))
        self.quiet = max(SHORT, self.quiet if endured is None else min(self.quiet, endured))

    def _drop(self, tracks: list[Track], grants: list[Grants]) -> None:
        """Methods that cost much though they do not draft, while others do."""
        drafting = {grant.arm for each in grants for grant in each}
        idle = [arm for arm in self.arms.values() if arm not in drafting]
        self.dropped = self.service.dropped(idle) if idle else ()

    def _hold(self, costs: Costs, grants: list[Grants]) -> None:
        """A plan holds the longer, the better its methods are known, while the ledger covers what it may lose."""
        granted = [grant for each in grants for grant in each]
        chances = [grant.arm.chances for grant in granted]
        risk = max(grant.arm.time(costs, grant.length) - 1.0 for grant in granted)
        self.loss = min(LOST * risk, self.ledger.risk, self.ledger.balance - risk)
        if self.loss > 0.0:
            brief = min(chances) < YOUNG or (self._cut and not self.ledger.full)
            self.hold = min(BRIEF if brief else HOLD, self.schedule.until - 1, max(chances) // 4)

    def _forbidden(self, costs: Costs, tracks: list[Track]) -> str:
        if costs.overhead is None or self.schedule.due or self.steps < 2:
            return MEASURING
        return REPAYING if self.ledger.balance <= self._kept(tracks) else ""

    def _kept(self, tracks: list[Track]) -> float:
        """What these sequences must leave in the ledger."""
        return RESERVE if tracks and all(track.loses for track in tracks) else 0.0

    def _grants(self, costs: Costs, tracks: list[Track]) -> list[Grants]:
        if len(tracks) == 1:
            return [self._granted(costs, tracks[0])]
        arms = {arm for track in tracks for arm in track.arms}
        if len(arms) == 1:
            grants = self._shared(costs, tracks, arms.pop())
        else:
            grants = [self._granted(costs, track) for track in tracks]
        return self._first_tries(grants)

    def _first_tries(self, grants: list[Grants]) -> list[Grants]:
        """A method of which little is known drafts for one of several sequences only: one mistake costs less than many."""
        first = [any(grant.arm.steps < TRIALS for grant in each) for each in grants]
        if not any(first):
            return grants
        self._turn += 1
        kept = [i for i, new in enumerate(first) if new]
        one = kept[self._turn % len(kept)]
        return [() if new and i != one else each for i, (new, each) in enumerate(zip(first, grants, strict=True))]

    # one sequence

    def _granted(self, costs: Costs, track: Track) -> Grants:
        """The best method; before it cheap ones, where they offer more; after it those that pay at all."""
        arms = self._known(track)
        if len(arms) == 1:
            return self._alone(costs, track, arms[0])
        tables = [arm.table(costs, self.longest) for arm in arms]
        rates = [track.rate(arm) for arm in arms]
        found = [arm.forecast(t, rate) for arm, t, rate in zip(arms, tables, rates, strict=True)]
        if not found:
            return ()
        worth = [arm.worth(forecast) for arm, forecast in zip(arms, found, strict=True)]
        worth = [max(w, PAYS) if track.pays(arm) else w for arm, w in zip(arms, worth, strict=True)]
        top = max(worth)
        best = worth.index(top)
        self._gain = top - 1.0
        if top <= 1.0:
            return ()
        idle = max(arms, key=lambda arm: arm.since)
        if idle.since >= max(self.every, self._probe_loss(costs, [track], idle) / self.ledger.income):
            return self._tried(costs, idle)
        grants = []
        for i, (arm, table, forecast) in enumerate(zip(arms, tables, found, strict=True)):
            grant = self._ahead(costs, arm, table, top) if i < best else self._own(costs, track, arm, table, forecast)
            if grant:
                grants.append(grant)
        return tuple(grants)

    def _known(self, track: Track) -> tuple[Arm, ...]:
        """Those that had a chance to show what they bring, and the next one where the ledger is full or none pays."""
        known = tuple(arm for arm in track.arms if arm.chances >= CHANCES)
        if len(known) == len(track.arms) or (any(arm.paid for arm in known) and not self.ledger.full):
            return known
        new = next(arm for arm in track.arms if arm not in known)
        return tuple(arm for arm in track.arms if arm is new or arm in known)

    def _alone(self, costs: Costs, track: Track, arm: Arm) -> Grants:
        """The only method."""
        table, rate = arm.table(costs, self.longest), track.rate(arm)
        usual = track.whole < WHOLE and not track.pays(arm) and 1.0 + self.ledger.risk >= table.times[-1]
        key = int(rate * GRAIN)
        if usual and (known := table.granted.get(key)) is not None:
            return known
        forecast = arm.forecast(table, rate)
        self._gain = forecast.rate - 1.0
        grant = self._own(costs, track, arm, table, forecast)
        granted: Grants = (grant,) if grant else ()
        if usual:
            table.granted[key] = granted
        return granted

    def _tried(self, costs: Costs, arm: Arm) -> Grants:
        """A method that has not drafted for long is asked alone, while others pay."""
        arm.since = 0
        length = self._affordable(arm.table(costs, self.longest).times, PROBE)
        return (self._probe(costs, arm, length),) if length else ()

    def _probe(self, costs: Costs, arm: Arm, length: int) -> Grant:
        """A short draft; a tree only as wide as it may pay."""
        return Grant(arm, length, arm.price(arm.table(costs, self.longest).times))

    def _own(self, costs: Costs, track: Track, arm: Arm, table: Table, forecast: Forecast) -> Grant | None:
        if self._too_late(track, arm):
            return None
        if forecast.length == 0:
            length = self._affordable(table.times, table.reach, TRUSTED) if track.pays(arm) else 0
            return Grant(arm, length, arm.price(table.times, forecast.length, forecast.survival)) if length else None
        length = table.reach if arm.priced else self._further(costs, track, arm, table, forecast)
        length = self._affordable(table.times, max(length, forecast.length), TRUSTED if track.pays(arm) else 1.0)
        if not length:
            return None
        length += length == arm.longest  # one more than it is known to make, to see whether it makes more
        return Grant(arm, length, arm.price(table.times, forecast.length, forecast.survival))

    def _too_late(self, track: Track, arm: Arm) -> bool:
        """The first draft for a sequence costs more than is there, or than drafts have gained so far."""
        if arm.name in track.rates or arm.steps < YOUNG:
            return False
        return arm.beginning > self.ledger.balance or (arm.beginning > 1.0 and arm.gain < 0.0)

    def _ahead(self, costs: Costs, arm: Arm, table: Table, rate: float) -> Grant | None:
        """A method that is asked before a better one: it must offer more than is expected of that one."""
        aside = arm.aside.get(costs.batch)
        cheap = aside is None or aside.at(1) - (costs.overhead or 0.0) < CHEAP * (1.0 + (costs.overhead or 0.0))
        hurdle = arm.hurdle(table.times, rate)
        if not (arm.priced and cheap and hurdle < 1.0):
            return None
        length = self._affordable(table.times, table.reach)
        return Grant(arm, length, hurdle) if length else None

    def _further(self, costs: Costs, track: Track, arm: Arm, table: Table, forecast: Forecast) -> int:
        """After some drafts that were accepted whole, a length that was never measured and may be better."""
        if track.whole < WHOLE:
            return forecast.length
        track.whole = 0
        path = arm.shape.path(track.rate(arm), len(table.times) - 1)
        return arm.promising(costs, table, path, forecast)

    def _affordable(self, times: list[float], length: int, trust: float = 1.0) -> int:
        """The longest draft up to ``length`` whose step cannot lose more than may be risked, so many times."""
        time_max, length = 1.0 + trust * self.ledger.risk, min(length, len(times) - 1)
        while length and times[length] > time_max:
            length -= 1
            self._cut = True
        return length

    # several sequences and one method

    def _shared(self, costs: Costs, tracks: list[Track], arm: Arm) -> list[Grants]:
        """Rows go where drafts survive: every sequence drafts until its survival is that of the best length's end."""
        table = arm.table(costs, self.longest)
        rates = [track.rate(arm) if track.arms else 0.0 for track in tracks]
        mean = sum(rates) / len(rates)
        upper = [rate for rate in rates if rate >= 0.999 * mean]
        typical = sum(upper) / len(upper)
        forecast = arm.forecast(table, typical)
        self._gain = forecast.rate - 1.0
        if forecast.length == 0:
            return [()] * len(tracks)
        survival_min = 0.98 * forecast.survival
        length_max = self._affordable(table.times, 2 * forecast.length)
        ends: dict[int, tuple[int, float]] = {}
        lengths, tokens = [], 0.0
        for rate in rates:
            key = int(rate * GRAIN)
            found = ends.get(key)
            if found is None:
                found = ends[key] = surviving(arm.shape.path(rate, length_max), survival_min, length_max)
            lengths.append(found[0])
            tokens += found[1]
        drafted = sum(lengths)
        time = table.times[min(length_max, -(-drafted // costs.batch))]
        rate = (1.0 + tokens / costs.batch) / time
        if rate <= 1.0:
            return [()] * len(tracks)
        price = arm.price(table.times, forecast.length, forecast.survival)
        if arm.priced:
            length_max = min(length_max, max(1, table.reach))
            lengths = [length_max if length else 0 for length in lengths]
        more = length_max == arm.longest
        return [(Grant(arm, length + (more and length == length_max), price),) if length else () for length in lengths]

    # probes

    def _probed(self, costs: Costs, tracks: list[Track]) -> list[Grants]:
        """Now and then a short draft of one sequence, paid for by the income of the steps since the last one."""
        grants: list[Grants] = [()] * len(tracks)
        arms = [arm for arm in self.arms.values() if any(arm in track.arms for track in tracks)]
        if not arms:
            return grants
        arm = max(arms, key=lambda a: a.since)
        loss = self._probe_loss(costs, tracks, arm)
        period = 0.0 if arm.steps < TRIALS else (loss + self.planning) / self.ledger.income
        missing = max(period - self._unprobed, (loss - self.ledger.balance) / self.ledger.income)
        if missing > 0:
            self.quiet = min(QUIET, int(missing + self.planning / self.ledger.income))
            return grants
        self._turn += 1
        arm.since = 0
        for at in range(len(tracks)):
            at = (at + self._turn) % len(tracks)
            if arm in tracks[at].arms:
                grants[at] = (self._probe(costs, arm, PROBE),)
                break
        self.probe = arm
        return grants

    def _probe_loss(self, costs: Costs, tracks: list[Track], arm: Arm) -> float:
        """Plain steps that a probe loses if it is rejected; the first draft for a sequence costs more."""
        known = any(arm.name in track.rates for track in tracks)
        return arm.time(costs, PROBE, 1) - 1.0 + (0.0 if known else arm.beginning)

    # after a step

    def learn(self, track: Track, arm: Arm, rows: int, depth: int, accepted: int, granted: int) -> None:
        """A draft was judged. rows: its tokens. depth: of its longest path. accepted: before stops and limits.

        granted: tokens that it might have had.
        """
        tested = accepted + 1 if accepted < depth else depth
        rate = track.rates.get(arm.name)
        if rate is None:
            rate = track.rates[arm.name] = Rate(arm.shape.rate, arm.shape.rate)
        rate.learn(tested, accepted)
        track.whole = track.whole + 1 if accepted == depth else 0
        if self.probe is arm:
            if track.whole:
                rate.trust()
                self._unprobed = float("inf")
            else:
                self._unprobed = 0.0
            self.book.of(arm.name).probes += 1
        arm.shape.learn(tested, accepted)
        arm.branched(rows, depth)
        arm.ended(depth, granted)
        lengths = self.book.of(arm.name).lengths
        lengths[depth] = lengths.get(depth, 0) + 1

    def planned(self, whole: float) -> None:
        """A plain step in which this controller planned took so many seconds: more than plain ones do, for no draft."""
        if self.machine.plain:
            spent = whole / self.machine.plain
            self.book.step(1.0, spent, 1, self.reason)
            self.planning += 0.1 * (min(LARGE, max(0.0, spent - 1.0)) - self.planning)
            self.ledger.settle(1.0, spent - self.ledger.forgive(spent - 1.0))

    def rested(self, steps: int) -> None:
        """So many plain steps are over whose time is not known."""
        self.ledger.settle(steps, steps)
        self.book.step(steps, steps, steps, self.reason)
        self._over(True, steps)

    def settle(self, done: Done, forward: float, whole: float, others: float = 0.0, own: float = 0.0) -> None:
        """A step is over. forward, whole: seconds of the forward, and of all but this controller.

        others: of a plain step, seconds that it would not have taken in a run without methods.
        own: seconds of this controller, which are paid for, but are no cost of the draft.
        """
        self.steps += 1
        if self.steps == 1:
            return  # the first forward warms caches up
        batch, times = done.batch, done.stands
        costs = self.machine.costs(batch, done.depth)
        plain = self.machine.measured(costs, done.rows, forward, whole - others - forward)
        spent, each = times * whole / plain, times * done.tokens / batch
        self.book.step(each, spent + own / plain, times, self.reason)
        if done.drafted and spent > 1.0 + LARGE:
            spent -= self._forgiven(costs, done, spent)
        self.ledger.settle(each, spent + own / plain - self.ledger.forgive(own / plain))
        self._over(done.rows == batch, times)
        if done.drafted:
            self._used(done, spent, each, (whole - forward) / self.machine.forward)
            self.own += OWN * (own / self.machine.forward - self.own)

    def _forgiven(self, costs: Costs, done: Done, spent: float) -> float:
        """Of a step that was disturbed: what it took beyond what was expected."""
        lengths = {arm: max(1, round(length / done.batch)) for arm, length in done.drafted.items()}
        more = sum((arm.time(costs, length) - 1.0 for arm, length in lengths.items()), 0.0)
        more += sum(arm.beginning for arm in lengths) if done.cold else 0.0
        return self.ledger.forgive(spent - 1.0 - more)

    def _used(self, done: Done, spent: float, each: float, aside: float) -> None:
        """By methods that drafted; a cost is learned where one drafted alone and had nothing to catch up on."""
        if len(done.drafted) == 1 and not done.cold:
            arm, length = next(iter(done.drafted.items()))
            arm.drafted(done.batch, max(1, round(length / done.batch)), aside)
        elif len(done.drafted) == 1 and done.batch == 1:
            arm, length = next(iter(done.drafted.items()))
            arm.began(spent - arm.time(self.machine.costs(1, done.depth), length))
        many = len(done.drafted)
        for arm in done.drafted:
            self.gained(None if done.cold else done.track, arm, 1, each, spent, many)

    def gained(self, track: Track | None, arm: Arm, steps: int, tokens: float, spent: float, many: int = 1) -> None:
        """A method drafted in so many steps. spent: their time in plain steps. many: methods that drafted in them."""
        arm.since = 0
        gain = (tokens - spent) / steps
        arm.gained(gain, steps)
        if track is not None:
            track.gained(arm, gain, steps)
        used = self.book.of(arm.name)
        used.steps += steps
        used.spent += spent / many
        used.tokens += tokens / many

    def held(self, steps: int, plain: int, tokens: float, spent: float) -> None:
        """So many steps of a plan that holds are over, some of them plain. spent: their time in plain steps."""
        self.steps += steps
        self.book.step(tokens, spent, steps, self.reason)
        self.ledger.settle(tokens, spent)
        self.machine.unmeasured()
        self.own *= (1.0 - OWN) ** (steps - plain)
        self._over(False, steps)

    def learn_all(self, track: Track, arm: Arm, tested: int, accepted: int, lengths: dict[int, int]) -> None:
        """Of several drafts, as sums. lengths: {tokens: drafts}."""
        rate = track.rates.get(arm.name)
        if rate is None:
            rate = track.rates[arm.name] = Rate(arm.shape.rate, arm.shape.rate)
        rate.learn_all(tested, accepted)
        arm.steps += sum(lengths.values())
        known = self.book.of(arm.name).lengths
        for depth, times in lengths.items():
            known[depth] = known.get(depth, 0) + times

    def _over(self, plain: bool, times: int) -> None:
        """So many steps are over, with drafts or plain."""
        self._unprobed += times
        for arm in self.arms.values():
            arm.since += times
        apart = int(2 * SHORT * self._gain / self.ledger.income)
        self.schedule.passed(plain, self.machine.surprised, apart, self.every, times)
