"""One method as the controller knows it: what its drafts cost, how they fare, and how long they should be."""

from __future__ import annotations

from statistics import median, median_low
from typing import Any

import attrs

from spec_control.acceptance import GRAIN, Shape
from spec_control.curve import SURE, Curve
from spec_control.machine import Costs
from spec_control.price import Factor

YOUNG, OLD = 4, 32
"""Plans for which a table of costs is used, at first and later."""
WARM, TRIALS, TRIALS_MAX = 2, 8, 64
"""Steps of a method that are not measured; those after which what it gained counts; and those in which it may draft
at most though it is not known to pay."""
ENDS = 4
"""Drafts that end at the same length by themselves, none longer, after which that is known to be the longest."""
PRICE_MIN, PRICE_MAX, UNSURE = 0.05, 0.9, 0.5
"""Of prices; and the most for a method that has drafted little for a sequence: else it might never draft more."""
SLOPED = 6
"""Tokens over which the cost of one more is averaged, at least."""
HOPE = 16
"""Accepted tokens that are added to those of a method, to judge whether it is worth more trials."""
FEW = 8
"""Steps for which it counts at first that nothing is known of what drafts gain."""
LOST = 4.0
"""Plain steps that the first drafts of a method may lose together, before it must wait for the income."""
BEGUN, DEARER = 16.0, 4.0
"""Plain steps that the first draft of a method counts for at most; and by how much more than known a later one does
that is the first for its sequence."""
SLOW, OFFERS, IDLING, USED = 0.005, 0.02, 0.2, 0.05
"""Weights of one step in what drafts gain, and in how often there is one; of a plan in what steps without one cost; and
of a draft in how much of what is allowed they use."""


@attrs.frozen
class Forecast:
    """A draft of ``length`` tokens: tokens that its step brings, and its time in plain steps.

    survival: chance that all of it is accepted.
    """

    length: int
    tokens: float
    time: float
    survival: float = 1.0

    @property
    def rate(self) -> float:
        """Tokens in the time of a plain step."""
        return self.tokens / self.time


@attrs.define
class Table:
    """Time of a step in plain steps by the length of the draft, [1, ...]. uses: until it is made anew.

    reach: the longest draft that pays, or may pay, if all of it is accepted.
    found: forecasts, by rate in ``GRAIN`` steps.
    granted: what a pacer makes of them where nothing else counts.
    """

    times: list[float]
    uses: int
    reach: int = 0
    found: dict[int, Forecast] = attrs.field(factory=dict)
    granted: dict[int, Any] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Arm:
    """A method in a run. priced: it asks for the price of a token and stops by it while it drafts.

    aside: by number of sequences, time beside the forward in plain forwards, by length of the draft: drafting,
    learning, rollback, catch-up. branching: rows of a draft for each token of its longest path.
    longest: the longest draft it is known to end at by itself, None where it made use of all it was granted.
    used: tokens of a draft by those that it was granted. factor: of its price.
    texts: sequences that it has drafted for. steps: in which it drafted. chances: in which it might.
    since: steps since it drafted last.
    offering: share of steps in which it drafts where it may. idle: by number of sequences, plain steps that the others
    cost.
    standing: seconds that it takes in a step in which it does not draft. beginning: plain steps that its first draft
    for a sequence takes beside what later ones take. held: its costs were measured in steps in which a plan held.
    paid: its drafts gain time, on average over many. lost: plain steps that its drafts and probes have lost so far.
    """

    name: str
    shape: Shape = attrs.field(factory=Shape)
    priced: bool = False
    aside: dict[int, Curve] = attrs.field(factory=dict)
    branching: float = 1.0
    texts: int = 0
    steps: int = 0
    chances: int = 0
    since: int = 0
    offering: float = 1.0
    idle: dict[int, float] = attrs.field(factory=dict)
    longest: int | None = None
    used: float = 1.0
    factor: Factor = attrs.field(factory=Factor)
    standing: float = 0.0
    beginning: float = 0.0
    held: bool = False
    gain: float = 0.0
    lost: float = 0.0
    _stood: list[float] = attrs.field(factory=list)
    _begins: list[float] | None = None
    _gains: int = 0
    _top: int = 0
    _ends: int = 0
    _tried: int = 0
    _tables: dict[tuple[int, int], Table] = attrs.field(factory=dict)

    # learning

    def drafted(self, batch: int, length: int, aside: float | None) -> None:
        """A step of ``batch`` sequences in which it alone drafted. aside: as the field, None where it is not known.

        The first ones warm it up. One in which the controller planned takes longer than those in which a plan holds:
        it does not count any more once there are such.
        """
        self.steps += 1
        if self.steps > WARM and aside is not None and not self.held:
            self._curve(batch).add(length, aside)

    def took(self, batch: int, length: int, aside: float, steps: int) -> None:
        """As ``drafted``, the median of so many steps in which a plan held."""
        if not self.held:
            self.held = True
            self.aside.clear()
        self._curve(batch).add(length, aside, min(SURE, steps))

    def _curve(self, batch: int) -> Curve:
        found = self.aside.get(batch)
        if found is None:
            found = self.aside[batch] = Curve()
        return found

    def ended(self, length: int, granted: int) -> None:
        """A draft of this many tokens, where more were granted: the longest it makes is learned from where it ends."""
        self.used += USED * (min(1.0, length / granted) - self.used)
        if length > self._top:
            self._top, self._ends, self.longest = length, 0, None
        elif length == self._top and length < granted:
            self._ends += 1
            if self._ends >= ENDS:
                self.longest = length

    def longer(self, length: int) -> int:
        """``length``, or now and then one token more than it is known to make, to see whether it makes more."""
        if length != self.longest or self.steps < self._tried:
            return length
        self._tried = 2 * self.steps
        return length + 1

    def usual(self, length: int) -> int:
        """Tokens of a draft that may have so many."""
        return max(1, round(self.used * length))

    def branched(self, rows: int, depth: int) -> None:
        """A draft of this many rows, whose longest path has ``depth``."""
        if rows != depth or self.branching != 1.0:
            self.branching += 0.1 * (rows / depth - self.branching)

    def stood(self, seconds: float) -> None:
        """It took so long in a step in which nobody drafted."""
        self._stood = [*self._stood[-4:], seconds]
        self.standing = median(self._stood)

    def began(self, excess: float) -> None:
        """Its first draft for a sequence took so many plain steps more than another would have.

        The very first one also loads and allocates: half of it counts until there is another. None counts for much more
        than was known before: one that was disturbed must not be the last.
        """
        if self._begins is None:
            self._begins, self.beginning = [], min(max(0.0, excess), BEGUN) / 2
            return
        self._begins = [*self._begins[-4:], min(max(0.0, excess), DEARER * max(1.0, self.beginning))]
        self.beginning = median_low(self._begins)

    def gained(self, tokens: float, spent: float, steps: int) -> float:
        """It drafted in so many steps. spent: their time. Returns plain steps that one of them gained, on average."""
        gain = (tokens - spent) / steps
        self.factor.gained(tokens, spent, steps)
        self.lost += spent - tokens
        self._gains += steps
        self.gain += max(1.0 - (1.0 - SLOW) ** steps, steps / (self._gains + FEW)) * (gain - self.gain)
        return gain

    def idled(self, batch: int, cost: float) -> None:
        """A step of ``batch`` sequences in which it was asked and offered nothing cost so many plain steps."""
        before = self.idle.get(batch, cost)
        self.idle[batch] = before + IDLING * (max(0.0, cost) - before)

    def net(self, batch: int, gain: float) -> float:
        """Plain steps that it gains in a step in which it is asked, if its drafts gain so many."""
        return gain * self.offering - (1.0 - self.offering) * self.idle.get(batch, 0.0)

    @property
    def stands(self) -> bool:
        """It was measured what it takes while it does not draft."""
        return bool(self._stood)

    @property
    def paid(self) -> bool:
        return self.gain > 0.0

    @property
    def value(self) -> float:
        """Plain steps that it gains in a step, those included in which it offers nothing; 0 where it loses."""
        return max(0.0, self.gain) * self.offering

    def asked(self, offered: float, steps: int = 1) -> None:
        """It might draft for a sequence in so many steps. offered: share of those in which it did."""
        self.chances += steps
        self.offering += max(1.0 - (1.0 - OFFERS) ** steps, steps / (self.chances + FEW)) * (offered - self.offering)

    # forecasts

    def table(self, costs: Costs, longest: int) -> Table:
        """Times of steps with drafts of 0 to ``longest`` tokens for every sequence, or as many as it makes."""
        if self.longest is not None and self.longest < longest:
            longest = self.longest
        rows = 2 * costs.forwards.numbers[-1] / (costs.batch * max(1.0, self.branching))
        if rows < longest:  # a forward is tried after one of half as many rows
            longest = max(1, int(rows))
        key = id(costs), longest
        found = self._tables.get(key)
        if found is None or found.uses <= 0:
            times = [self.time(costs, k) for k in range(longest + 1)]
            found = self._tables[key] = Table(times, YOUNG if self.steps < 8 * YOUNG else OLD)
            certain = [1.0] * (longest + 1)
            found.reach = self.promising(costs, found, certain, self.best(found.times, certain))
        found.uses -= 1
        return found

    def time(self, costs: Costs, length: int, sequences: int | None = None) -> float:
        """Of a step in which so many sequences draft ``length`` tokens, in plain steps. sequences: None is all.

        Before a plan held, a drafted token is never expected to cost more than a plain forward: a first measurement
        that was disturbed must not be the last.
        """
        if length == 0:
            return 1.0
        overhead = costs.overhead or 0.0
        aside = self.aside.get(costs.batch)
        rows = self._rows(costs, length, sequences)
        each = length if sequences is None else max(1, round(length * sequences / costs.batch))
        beside = max(overhead, aside.at(each)) if aside else overhead
        if not self.held:
            beside = min(beside, overhead + length)
        return (costs.forwards.at(costs.batch + rows) + beside + costs.own) / (1.0 + overhead)

    def _rows(self, costs: Costs, length: int, sequences: int | None = None) -> int:
        """Of drafts of this length."""
        return (sequences or costs.batch) * self.rows(length)

    def rows(self, length: int) -> int:
        """Of a draft whose longest path has so many tokens."""
        return max(length, round(length * self.branching))

    def forecast(self, table: Table, rate: float) -> Forecast:
        """The best length at this rate."""
        key = int(rate * GRAIN)
        found = table.found.get(key)
        if found is None:
            found = table.found[key] = self.best(table.times, self.shape.path(rate, len(table.times) - 1))
        return found

    def best(self, times: list[float], path: list[float]) -> Forecast:
        """The length with the best tokens per time, looking over all of them: a costly token may open cheap ones.

        path: chance that so many tokens are accepted, by their number.
        """
        length, tokens, rate_max, survival = 0, 1.0, 1.0, 1.0
        expected = 1.0
        for k in range(1, len(times)):
            chance = path[k]
            expected += chance
            if expected > rate_max * times[k]:
                length, tokens, rate_max, survival = k, expected, expected / times[k], chance
        return Forecast(length, tokens, times[length], survival)

    def promising(self, costs: Costs, table: Table, path: list[float], than: Forecast) -> int:
        """The length that would be the best if forwards that were not measured cost what the next shorter ones do.

        Where a cost has steps, the end of one is found like this.
        """
        length, best, tokens = than.length, than.rate, 1.0
        overhead = costs.overhead or 0.0
        for k in range(1, len(table.times)):
            tokens += path[k]
            rows = costs.batch + self._rows(costs, k)
            if not costs.forwards.knows(rows):
                saved = costs.forwards.at(rows) - costs.forwards.below(rows)
                hoped = tokens / (table.times[k] - saved / (1.0 + overhead))
                if hoped > best:
                    length, best = k, hoped
        return length

    def worth(self, forecast: Forecast, standing: float = 0.0) -> float:
        """Tokens per plain step where it is asked: steps in which it offers nothing are plain, but for ``standing``."""
        share = self.offering
        idle = 1.0 - share
        return (share * forecast.tokens + idle) / (share * forecast.time + idle * (1.0 + standing))

    def price(self, times: list[float], length: int = 0, survival: float = 1.0) -> float:
        """Chance at which one more token pays, no higher than that of the draft that was found best: its survival.

        It is what the token costs in plain steps, by the method's own estimate of chances. Until it is known how good
        that is, it is taken as it is, though time is worth more where drafts gain: most methods are too careful.
        What is found for one price also says how often last tokens must be accepted, by which the next ones are set.
        """
        last = min(max(SLOPED, length), len(times) - 1)
        slope = times[last] - 1.0 if last < 2 else (times[last] - times[1]) / (last - 1)
        self.factor.require(slope)
        return bounded(min(slope, survival)) * self.factor.value

    def stopped(self, drafts: int, whole: int) -> None:
        """So many chains ended before their limit; of some, all tokens were accepted. Of trees this says little."""
        if self.branching == 1.0:
            self.factor.learn(drafts, whole)

    def hurdle(self, times: list[float], rate: float) -> float:
        """Mean chance of the tokens of a draft that is worth more than ``rate`` tokens per plain step."""
        last = len(times) - 1
        return bounded((rate * times[last] - 1.0) / last)

    def likely(self, times: list[float]) -> bool:
        """Whether its drafts are expected to pay, by their rate."""
        return self.shape.rate > self.hurdle(times, 1.0)

    def promises(self, times: list[float]) -> bool:
        """Whether it may turn out to pay, as far as its first drafts say, and they have not cost much."""
        tested = self.shape.tested
        if self.lost >= LOST or self.steps >= (TRIALS_MAX if self.lost > 0.0 else TRIALS):
            return False
        return (self.shape.rate * tested + HOPE) / (tested + HOPE) > self.hurdle(times, 1.0)


def bounded(price: float) -> float:
    return PRICE_MIN if price < PRICE_MIN else PRICE_MAX if price > PRICE_MAX else price
