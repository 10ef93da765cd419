"""Which methods may draft in a step, and how many tokens: what is expected to bring the most per time."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import attrs

from spec_control.acceptance import GRAIN, surviving
from spec_control.arm import LOST, TRIALS, UNSURE, Arm, Forecast, Table
from spec_control.ledger import Ledger
from spec_control.machine import Costs
from spec_control.service import Service
from spec_control.track import Grant, Grants, Track

PROBE, PROBE_MAX, FIRST = 2, 8, 4
"""Tokens of a probe, and at most of one for one of several sequences; and of the first drafts of a method in a list."""
WHOLE = 3
"""Drafts accepted whole, one after the other, after which a longer one is tried."""
CHANCES = 12
"""Steps in which a method might draft before the next new one may."""
TRUSTED = 1.5
"""By how much more a step may lose whose method stops by the price, and has gained in this sequence."""
SEVERAL = 1.25
"""And by how much more one with drafts for several sequences."""
USEFUL = 1.1
"""Tokens per plain step that a draft must bring at least, if all of it is accepted."""
ENOUGH = 0.5
"""Of the usual length of a method that has gained in this sequence: as long as that, its drafts may be cut short."""
PAYS = 1.01
"""Tokens per plain step of a method that pays, but is not expected to by its rate."""
CHEAP = 0.05
"""Time beside the forward, in plain steps, up to which a method is asked though another is expected to be better."""
BEGINNING = 2.0
"""Plain steps that a first draft for a sequence takes, above which another sequence is not drafted for just to try."""
SPARED, LEFT = 0.5, 2.0
"""Share of the ledger that a first draft for a sequence may take, as those that follow it may lose, too; and plain
steps that it must leave if its method is known to pay."""
YOUNG = 32
"""Steps of a method after which it is known."""


@attrs.define(eq=False)
class Choice:
    """longest: max tokens of a draft. every: max steps between two plain ones that are measured.

    gain: tokens per plain step of the last choice, without those of plain steps.
    planning: plain steps that a plan takes.
    lacks: plain steps that the ledger lacks for what would have been best; inf where it allowed that.
    """

    ledger: Ledger
    service: Service
    longest: int = 16
    every: int = 128
    gain: float = 0.0
    planning: float = 0.0
    lacks: float = inf
    _turn: int = 0

    def grants(self, costs: Costs, tracks: list[Track]) -> list[Grants]:
        """For each sequence the methods that may draft for it, in their order."""
        self.lacks = inf
        if len(tracks) == 1:
            return [self._granted(costs, tracks[0])]
        arms = {arm for track in tracks for arm in track.arms}
        if len(arms) == 1:
            grants = self._shared(costs, tracks, arms.pop())
        else:
            grants = [self._granted(costs, track) for track in tracks]
        return self._first_tries(tracks, grants)

    @property
    def cut(self) -> bool:
        """The ledger did not allow what would have been best."""
        return self.lacks < inf

    def _lacking(self, needed: float) -> None:
        self.lacks = min(self.lacks, max(0.0, needed + self.planning - self.ledger.balance))

    def _first_tries(self, tracks: list[Track], grants: list[Grants]) -> list[Grants]:
        """A method of which little is known drafts for one of several sequences only: a mistake costs less."""
        first = [any(grant.arm.steps < TRIALS for grant in each) for each in grants]
        if not any(first):
            return grants
        arm = next(grant.arm for each in grants for grant in each if grant.arm.steps < TRIALS)
        one = self.one_of(tracks, arm, [i for i, new in enumerate(first) if new])
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
        worth = [arm.worth(one, self.service.standing(arm)) for arm, one in zip(arms, found, strict=True)]
        worth = [max(w, PAYS) if track.pays(arm, costs.batch) else w for arm, w in zip(arms, worth, strict=True)]
        top = max(worth)
        best = self._best(track, arms, worth)
        self.gain = top - 1.0
        if top <= 1.0:
            return ()
        idle = max(arms, key=lambda arm: arm.since)
        loss = self.probe_loss(costs, [track], idle, PROBE) + self.gain + 2.0 * self.planning
        if idle.since >= max(self.every, loss / self.ledger.income) and (tried := self._tried(costs, idle)):
            return tried
        grants = []
        for i, (arm, table, forecast) in enumerate(zip(arms, tables, found, strict=True)):
            grant = self._ahead(costs, arm, table, top) if i < best else self._own(costs, track, arm, table, forecast)
            if grant:
                grants.append(grant)
        return tuple(grants)

    def _best(self, track: Track, arms: tuple[Arm, ...], worth: list[float]) -> int:
        """The method to draft: by what is expected, or of several that have gained, by how much."""
        paying = [i for i, each in enumerate(worth) if each > 1.0]
        if len(paying) > 1 and all(known_to_pay(arms[i]) for i in paying):
            return max(paying, key=lambda i: self._net(track, arms[i]))
        return worth.index(max(worth))

    def _net(self, track: Track, arm: Arm) -> float:
        """Plain steps that a step gains, those included in which it offers nothing."""
        gain = track.gains.get(arm.name, arm.gain)
        return gain * arm.offering - (1.0 - arm.offering) * self.service.standing(arm)

    def _known(self, track: Track) -> tuple[Arm, ...]:
        """Those that had a chance to show what they bring, and the next one.

        That one may load and evaluate a whole text for its first draft: the ledger must be full for it.
        """
        known = tuple(arm for arm in track.arms if arm.chances >= CHANCES)
        if len(known) == len(track.arms) or (any(arm.paid for arm in known) and not self.ledger.full):
            return known
        new = next(arm for arm in track.arms if arm not in known)
        if not (new.steps or self.ledger.full or new is track.arms[0]):
            return known
        return tuple(arm for arm in track.arms if arm is new or arm in known)

    def _alone(self, costs: Costs, track: Track, arm: Arm) -> Grants:
        """The only method."""
        table, rate = arm.table(costs, self.longest), track.rate(arm)
        usual = track.whole < WHOLE and not track.pays(arm, costs.batch) and 1.0 + self.risk(costs) >= table.times[-1]
        key = int(rate * GRAIN)
        if usual and (known := table.granted.get(key)) is not None:
            return known
        forecast = arm.forecast(table, rate)
        self.gain = forecast.rate - 1.0
        grant = self._own(costs, track, arm, table, forecast)
        granted: Grants = (grant,) if grant else ()
        if usual:
            table.granted[key] = granted
        return granted

    def _tried(self, costs: Costs, arm: Arm) -> Grants:
        """A method that has not drafted for long is asked alone, while others pay."""
        length = self._affordable(costs, arm.table(costs, self.longest).times, PROBE)
        if not length:
            return ()
        arm.since = 0
        return (self.probe(costs, arm, length),)

    def probe(self, costs: Costs, arm: Arm, length: int) -> Grant:
        """A short draft; a tree only as wide as it may pay."""
        return Grant(arm, length, min(UNSURE, arm.price(arm.table(costs, self.longest).times)))

    def _own(self, costs: Costs, track: Track, arm: Arm, table: Table, forecast: Forecast) -> Grant | None:
        if self._too_late(track, arm):
            return None
        pays = track.pays(arm, costs.batch)
        if not (pays or (forecast.length and self._worthwhile(costs, arm, forecast))):
            return None
        wanted = table.reach if arm.priced else self._further(costs, track, arm, table, forecast)
        wanted = max(wanted, forecast.length)
        if arm.steps < TRIALS and len(track.arms) > 1:
            wanted = min(wanted, FIRST)
        length = self._affordable(costs, table.times, wanted, TRUSTED if pays else 1.0)
        enough = length == wanted or (pays and length >= ENOUGH * arm.usual(wanted))
        if not length or not (enough or self._useful(arm, table, track.rate(arm), length)):
            return None  # what little may be risked is not expected to gain
        price = track.price(arm, arm.price(table.times, forecast.length, forecast.survival))
        return Grant(arm, arm.longer(length), price)

    def hopeful(self, costs: Costs) -> bool:
        """Whether anybody might draft for a sequence of which nothing is known. ``lacks`` is as after ``grants``."""
        self.lacks = inf
        new = Track(tuple(self.service.arms.values()))
        tables = [(arm, arm.table(costs, self.longest)) for arm in new.arms]
        found = [self._own(costs, new, arm, table, arm.forecast(table, new.rate(arm))) for arm, table in tables]
        return any(grant is not None for grant in found)

    def _useful(self, arm: Arm, table: Table, rate: float, length: int) -> bool:
        """Whether a draft is expected to gain that is shorter than the best one."""
        return (
            1.0 + length >= USEFUL * table.times[length]
            and sum(arm.shape.path(rate, length)[: length + 1]) >= table.times[length]
        )

    def _worthwhile(self, costs: Costs, arm: Arm, forecast: Forecast) -> bool:
        """Whether drafts as they are expected gain more than the steps cost in which there is none.

        A method that lost what its first drafts may lose is not asked because of what is expected of it.
        """
        if arm.steps < TRIALS and arm.lost >= LOST:
            return False
        return arm.net(costs.batch, forecast.tokens - forecast.time) > 0.0

    def _too_late(self, track: Track, arm: Arm) -> bool:
        """The first draft for a sequence costs more than is there, or than drafts have gained so far.

        Beside a method that gains, such a draft is paid for by the income since the last one.
        """
        if arm.name in track.rates or arm.beginning <= 1.0:
            return False
        beside = any(other.paid for other in track.arms if other is not arm)
        if arm.steps < YOUNG and not beside:
            return False
        if arm.gain <= 0.0 and (not beside or arm.since * self.ledger.income < arm.beginning):
            return True
        needed = arm.beginning + LEFT if known_to_pay(arm) else arm.beginning / SPARED
        if self.ledger.balance < needed:
            self._lacking(needed)
            return True
        return False

    def _ahead(self, costs: Costs, arm: Arm, table: Table, rate: float) -> Grant | None:
        """A method that is asked before a better one: it must offer more than is expected of that one."""
        aside = arm.aside.get(costs.batch)
        cheap = aside is None or aside.at(1) - (costs.overhead or 0.0) < CHEAP * (1.0 + (costs.overhead or 0.0))
        hurdle = arm.hurdle(table.times, rate)
        if not (arm.priced and cheap and hurdle < 1.0):
            return None
        length = self._affordable(costs, table.times, table.reach)
        return Grant(arm, length, hurdle) if length else None

    def _further(self, costs: Costs, track: Track, arm: Arm, table: Table, forecast: Forecast) -> int:
        """After some drafts that were accepted whole, a length that was never measured and may be better."""
        if track.whole < WHOLE:
            return forecast.length
        track.whole = 0
        path = arm.shape.path(track.rate(arm), len(table.times) - 1)
        return arm.promising(costs, table, path, forecast)

    def risk(self, costs: Costs) -> float:
        """Plain steps that one step may lose: more where it has drafts of several texts, seldom all of them wrong."""
        return self.ledger.risk * (SEVERAL if costs.batch > 1 else 1.0)

    def _affordable(self, costs: Costs, times: list[float], length: int, trust: float = 1.0) -> int:
        """The longest draft up to ``length`` whose step cannot lose more than may be risked, so many times."""
        time_max, length = 1.0 + trust * self.risk(costs), min(length, len(times) - 1)
        while length and times[length] > time_max:
            length -= 1
            self._lacking(self.ledger.next_level)  # longer drafts may pay with that much
        return length

    # several sequences and one method

    def _shared(self, costs: Costs, tracks: list[Track], arm: Arm) -> list[Grants]:
        """Rows go where drafts survive: every sequence drafts until its survival is that of the best length's end."""
        table, ready = arm.table(costs, self.longest), [*self._ready(tracks, arm)]
        rates = [track.rate(arm) if may else 0.0 for track, may in zip(tracks, ready, strict=True)]
        mean = sum(rates) / len(rates)
        upper = [rate for rate in rates if rate >= 0.999 * mean]
        typical = sum(upper) / len(upper)
        forecast = arm.forecast(table, typical)
        self.gain = forecast.rate - 1.0
        if forecast.length == 0 or not self._worthwhile(costs, arm, forecast):
            return self._paying(costs, tracks, arm, table, ready)
        survival_min = 0.98 * forecast.survival
        length_max = self._affordable(costs, table.times, 2 * forecast.length)
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
            return self._paying(costs, tracks, arm, table, ready)
        price = arm.price(table.times, forecast.length, forecast.survival)
        if arm.priced:
            length_max = min(length_max, max(1, table.reach))
            lengths = [length_max if length else 0 for length in lengths]
        end = arm.longer(length_max)
        return [
            (Grant(arm, end if length == length_max else length, track.price(arm, price)),) if length else ()
            for track, length in zip(tracks, lengths, strict=True)
        ]

    def _paying(self, costs: Costs, tracks: list[Track], arm: Arm, table: Table, ready: list[bool]) -> list[Grants]:
        """Drafts of a method that stops by the price have gained, though they are not expected to by their rate."""
        length = self._affordable(costs, table.times, table.reach, TRUSTED)
        if 1.0 + length <= table.times[length]:
            length = 0
        price = arm.price(table.times)
        both = zip(tracks, ready, strict=True)
        return [
            (Grant(arm, length, track.price(arm, price)),) if length and may and track.pays(arm, costs.batch) else ()
            for track, may in both
        ]

    def _ready(self, tracks: list[Track], arm: Arm) -> Iterator[bool]:
        """Whether it may draft for each: first drafts that take long are made for as many as the ledger allows."""
        left = self.ledger.balance / 2
        for track in tracks:
            ready = arm in track.arms
            if ready and arm.beginning > 1.0 and arm.name not in track.rates:
                left -= arm.beginning
                ready = left >= 0.0 and not self._too_late(track, arm)
            yield ready

    # probes

    def one_of(self, tracks: list[Track], arm: Arm, able: list[int]) -> int:
        """Which sequence a method drafts for where it does for one only: another each time, if that costs little.

        able: those that it may draft for.
        """
        self._turn += 1
        begun = [i for i in able if arm.name in tracks[i].rates]
        among = begun if begun and arm.beginning > BEGINNING else able
        return among[self._turn % len(among)]

    def probe_length(self, costs: Costs, arm: Arm) -> int:
        """Of one sequence, the shortest that gains if all of it is accepted.

        A method that stops by the price may show what it would draft for all of several.
        """
        if costs.batch == 1:
            times = arm.table(costs, self.longest).times
            return next((k for k in range(PROBE, len(times)) if 1.0 + k > times[k]), PROBE)
        if not arm.priced:
            return PROBE
        rows = 2 * costs.forwards.numbers[-1] - costs.batch
        return max(PROBE, min(PROBE * costs.batch, rows, self.longest, PROBE_MAX))

    def probe_loss(self, costs: Costs, tracks: list[Track], arm: Arm, length: int) -> float:
        """Plain steps that a probe loses if it is rejected; the first draft for a sequence costs more."""
        known = any(arm.name in track.rates for track in tracks)
        return arm.time(costs, length, 1) - 1.0 + (0.0 if known else arm.beginning)


def known_to_pay(arm: Arm) -> bool:
    """Its drafts have gained so far, on average over enough steps."""
    return arm.paid and arm.chances >= YOUNG


def rejected(costs: Costs, granted: list[Grant]) -> float:
    """Plain steps that a step with such a draft loses if none of its tokens is accepted."""
    drafting = min(costs.batch, len(granted))
    return max(grant.arm.time(costs, grant.length, drafting) for grant in granted) - 1.0
