"""What steps cost on this machine at this moment, in plain steps.

A plain step of a batch is the unit. What a forward of n rows costs against a plain one is learned from steps that are
close to each other, plain ones and others; how fast the machine is at the moment, from every forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import attrs
from spec_costs.file import StepCost

from spec_control.curve import FIT, RECENT, SURE, Curve

SLOPE = 0.05
"""Cost of a row, in plain steps of one sequence, where nothing but plain steps was measured."""
USUAL = 4
"""Numbers of rows whose costs are learned from the steps of one plan, those that were most often."""
DIFFERENT = 1.25
"""A forward that costs this much more or less than predicted is measured again soon."""
DRIFTED = 1.5
"""Forwards of a plan whose first half took as much longer or shorter than the second one tell no cost."""
CLOSE = 1.3
"""Where the next larger number of rows that was measured costs at most so many times as much as the next smaller one,
those between them are known."""
NEAR = 8
"""Steps of a rest up to which its last one is compared with the drafts before it, whatever it took; after a longer one
only if it took about as long as expected."""


@attrs.define
class Costs:
    """Of one number of sequences at one depth. forwards: by rows, 1 for a plain one.

    overhead: what a plain step takes beside its forward, in plain forwards; None before the first.
    own: what the controller takes in a step with drafts, in plain forwards.
    pairs: {rows: how often they were compared with a plain step that was next to them}.
    seconds: of the last plain forward.
    """

    batch: int
    forwards: Curve
    overhead: float | None = None
    own: float = 0.0
    pairs: dict[int, int] = attrs.field(factory=dict)
    seconds: float = 0.0
    _recent: list[float] = attrs.field(factory=list)
    _plain: int = 0

    def compared(self, rows: int) -> int:
        """0 to ``SURE``: how directly the cost of so many rows is known."""
        return min(SURE, self.pairs.get(rows, 0))

    def share(self, rows: int) -> float | None:
        """Time of a plain step by that of a forward of so many rows.

        None where it was not measured often enough to be sure, and lies between others that differ much.
        """
        curve = self.forwards
        if rows > self.batch and not curve.knows(rows) and curve.gap(rows) > CLOSE:
            return None
        return (1.0 + (self.overhead or 0.0)) / (curve.at(rows) * (1.0 + curve.error(rows)))

    def shares(self, rows_max: int) -> dict[int, float]:
        """Of each number of rows for which it is known, up to ``rows_max``."""
        found = ((rows, self.share(rows)) for rows in range(self.batch, rows_max + 1))
        return {rows: share for rows, share in found if share is not None}

    def plain(self, overhead: float) -> None:
        """A plain step took this beside its forward, in its forwards."""
        self._recent.append(overhead)
        del self._recent[:-RECENT]
        self._plain += 1
        if len(self._recent) <= FIT or self._plain % FIT == 0:
            self.overhead = median(self._recent)


@attrs.define
class Machine:
    """Costs by number of sequences and depth.

    forward: seconds of a plain forward at the moment, from the last step whose cost is known.
    plain: seconds of a plain step at the moment. row: of one more row of a forward.
    surprised: the last pair of steps showed a cost that has changed, or is not known for sure.
    """

    known: dict[tuple[int, int], Costs] = attrs.field(factory=dict)
    forward: float = 0.0
    plain: float = 0.0
    row: float = 0.0
    surprised: bool = False
    _batch: int = 0
    _last: tuple[Costs, int, float] | None = None
    _medians: dict[int, tuple[float, int]] = attrs.field(factory=dict)
    _odd: tuple[int, int] | None = None

    def costs(self, batch: int, depth: int) -> Costs:
        """For this many sequences of about this many positions; what was never measured begins as the nearest was."""
        key = batch, depth.bit_length()
        found = self.known.get(key)
        return self._new(key) if found is None else found

    def at(self, batch: int, depth: int) -> Costs:
        """The same, of steps that are made now: a plain one is of this many sequences from now on."""
        found = self.costs(batch, depth)
        if batch != self._batch:
            self._batch = batch
            if found.seconds:
                self.forward = found.seconds
                self.plain = self.forward * (1.0 + (found.overhead or 0.0))
        return found

    def _new(self, key: tuple[int, int]) -> Costs:
        made = self.known[key] = self._like(key)
        return made

    def _like(self, key: tuple[int, int]) -> Costs:
        batch = key[0]
        same = [k for k in self.known if k[0] == batch]
        if same:
            near = self.known[min(same, key=lambda k: abs(k[1] - key[1]))]
            known = near.overhead, near.own, dict(near.pairs), near.seconds
            return Costs(batch, near.forwards.copy(), *known, list(near._recent))
        made = Costs(batch, Curve(SLOPE / batch))
        made.forwards.add(batch, 1.0)
        return made

    def begin_with(self, steps: Iterable[StepCost]) -> None:
        """Costs that were measured before, as whole steps; real steps replace them."""
        known = {(step.batch, step.depth, step.rows): step.seconds for step in steps}
        for (batch, depth, rows), seconds in known.items():
            if rows > 1 and (plain := known.get((batch, depth, 1))) is not None:
                for _ in range(SURE):
                    self.costs(batch, depth).forwards.add(batch * rows, max(1.0, min(seconds / plain, rows)))

    def measured(self, costs: Costs, rows: int, forward: float, overhead: float, apart: int = 1) -> float:
        """Learn from a step; returns seconds that a plain step would have taken. rows: of the forward.

        overhead: seconds beside the forward. apart: steps since the last one that was measured.
        """
        plain, changed = rows == costs.batch, apart > NEAR and not alike(forward, self.forward)
        if changed and not alike(forward, self.forward, DRIFTED):  # another speed: earlier drafts cost as before
            self._last, self._medians = None, {}
        self._compare(costs, rows, forward, plain)
        self.surprised = self.surprised or changed  # or a prompt was just before it: the next plain steps tell
        if plain:
            self.forward = forward
            costs.plain(overhead / forward)
        elif costs.forwards.knows(rows) or self._last is None or self._last[0].batch != costs.batch:
            self.forward = forward / costs.forwards.at(rows)
        # n rows never cost more than n forwards of one: what took longer was the machine
        self.forward = max(self.forward, forward * costs.batch / rows)
        self._last, self._medians = (costs, rows, forward), {}
        if plain:
            costs.forwards.slope = max(SLOPE / costs.batch, self.row / forward)
            costs.seconds = forward
            self._borrow(costs)
            self.plain = forward + overhead
            return self.plain
        return self.forward / (1.0 + costs.forwards.error(rows)) * (1.0 + (costs.overhead or 0.0))

    def expected(self, costs: Costs, rows: int, forward: float) -> float:
        """Seconds of a plain step, by a step from which nothing is learned."""
        share = costs.share(rows)
        return self.plain if share is None else forward * share

    def held(self, costs: Costs, forwards: Mapping[int, list[float]]) -> bool:
        """Learn from steps in which a plan held; whether enough of them were plain. forwards: {rows: seconds of each}.

        Their medians are compared with that of plain ones among them, or else with the next plain step.
        """
        usual = sorted(forwards, key=lambda rows: len(forwards[rows]))[-USUAL:]
        if any(drifts(forwards[rows]) for rows in usual):  # compared with another step, all of them would be wrong
            self._last, self._medians, self.surprised = None, {}, True
            return False
        medians = {rows: (median(forwards[rows]), min(SURE, len(forwards[rows]))) for rows in usual}
        plain, times = medians.pop(costs.batch, (0.0, 0))
        last, error = self._last, 0.0
        self._last, self._medians, self.surprised = None, medians, False
        if times == SURE:
            self._last, self.forward = (costs, costs.batch, plain), plain
            costs.seconds = plain
            self._compare_medians(costs, plain)
        elif medians:
            known = max(medians, key=lambda rows: (costs.compared(rows), costs.forwards.times(rows), medians[rows][1]))
            before = self.forward
            if costs.forwards.knows(known):
                self.forward = medians[known][0] / costs.forwards.at(known)
                error = costs.forwards.error(known)
            self.surprised = not alike(self.forward, before)  # the speed or the cost has changed: a plain step tells
            if costs.compared(known) == SURE:
                self._beside(costs, medians)
            elif last is not None and last[:2] == (costs, costs.batch):
                self._guess(costs, last[2])
            unsure = sum(times for rows, (_, times) in medians.items() if not costs.forwards.knows(rows))
            self.surprised = self.surprised or unsure >= SURE
            self._last = costs, known, medians[known][0]
        self.plain = self.forward * (1.0 + (costs.overhead or 0.0)) / (1.0 + error)
        return times == SURE

    def _beside(self, costs: Costs, medians: Mapping[int, tuple[float, int]]) -> None:
        """Beside a forward whose cost is known for sure: those of which little is known."""
        for rows, (seconds, times) in medians.items():
            if costs.compared(rows) < SURE:
                costs.forwards.add(rows, max(1.0, min(seconds / self.forward, rows / costs.batch)), times)

    def _compare_medians(self, costs: Costs, plain: float) -> None:
        """plain: seconds of a plain forward soon before or after.

        If it is not as expected, the machine may have changed its speed since: what was never measured is not learned.
        """
        surprised = moved = not alike(plain, self.forward, DRIFTED)
        for rows, (seconds, times) in self._medians.items():
            if moved and not costs.forwards.knows(rows):
                continue
            self._learn(costs, rows, seconds / plain, times)
            surprised = surprised or self.surprised
        self._medians, self.surprised = {}, surprised

    def _compare(self, costs: Costs, rows: int, forward: float, plain: bool) -> None:
        """Two steps in a row, one of them plain, say what the other's forward costs."""
        last = self._last
        self.surprised = False
        if last is None or last[0] is not costs:
            if plain and last is not None and last[0].batch == costs.batch:
                self._guess(last[0], forward)
            return
        before, seconds = last[1], last[2]
        if plain and self._medians:
            self._compare_medians(costs, forward)
        elif plain and before != rows:
            self._learn(costs, before, seconds / forward)
        elif not plain and before == costs.batch:
            self._learn(costs, rows, forward / seconds)
        elif not plain:
            self._between(costs, before, rows, forward / self.forward)

    def _guess(self, costs: Costs, plain: float) -> None:
        """A plain step was made soon before or after others, maybe at another depth: it counts if nothing else does."""
        for rows, (seconds, times) in self._medians.items():
            if not costs.compared(rows):
                if costs.forwards.times(rows):
                    costs.forwards.forget(rows, 1)
                ratio = max(1.0, min(seconds / plain, rows / costs.batch))
                costs.forwards.add(rows, ratio, min(times, SURE - 1))  # one plain forward makes nobody sure

    def _between(self, costs: Costs, before: int, rows: int, ratio: float) -> None:
        """Two steps with drafts in a row: the cost of the one that was less often next to a plain step is learned."""
        curve = costs.forwards
        if curve.knows(rows) and costs.compared(before) <= costs.compared(rows):
            return
        if alike(ratio, curve.at(rows)):
            curve.add(rows, ratio)
        else:  # either this cost is not what was expected, or the machine's speed has changed: a plain step tells
            self.surprised = curve.knows(rows)

    def _learn(self, costs: Costs, rows: int, ratio: float, times: int = 1) -> None:
        """ratio: to a plain forward, the median of so many times.

        A cost that was far off twice in a row has changed: earlier measurements are dropped, and also at the first
        comparison with a plain step. Rows at once never cost more than one after the other: more was a disturbance.
        Nor less than a plain forward: then the machine has changed its speed between the two, and nothing is learned.
        """
        if ratio * DIFFERENT < 1.0:
            self.surprised = True
            return
        curve = costs.forwards
        before = costs.pairs.get(rows, 0)
        costs.pairs[rows] = before + times
        ratio = min(ratio, rows / costs.batch)
        expected, again = curve.at(rows), self._odd == (id(curve), rows)
        changed = curve.knows(rows) and not alike(ratio, expected)
        self._odd = (id(curve), rows) if changed else None
        if (changed and again) or (before == 0 and curve.times(rows)):
            curve.forget(rows, 1)
        curve.add(rows, ratio, times)
        self.row = max(0.0, (curve.at(rows) - 1.0) * self.forward / (rows - costs.batch))
        self.surprised = changed
        if before == 0:
            self._share(costs, rows, ratio, times)

    def _borrow(self, costs: Costs) -> None:
        """As many rows are expected to take as long as of another number of sequences, until they were measured."""
        others = [other for (batch, _), other in self.known.items() if batch != costs.batch and other.seconds]
        if not others:
            return
        near = min(others, key=lambda other: (abs(other.batch - costs.batch), -len(other.forwards.numbers)))
        for rows in near.forwards.numbers:
            known = rows == near.batch or near.forwards.knows(rows)
            if known and rows > costs.batch and not costs.forwards.times(rows):
                ratio = near.forwards.at(rows) * near.seconds / costs.seconds
                costs.forwards.add(rows, max(1.0, min(ratio, rows / costs.batch)), SURE)

    def _share(self, costs: Costs, rows: int, ratio: float, times: int) -> None:
        """At other depths, where this was never compared, it is expected to be the same."""
        for (batch, _), other in self.known.items():
            if batch == costs.batch and not other.compared(rows):
                other.forwards.add(rows, ratio, times)


def alike(one: float, other: float, factor: float = DIFFERENT) -> bool:
    return other / factor < one < other * factor


def drifts(seconds: list[float]) -> bool:
    """Whether the machine changed its speed between such forwards."""
    half = len(seconds) // 2
    return half > 2 and not alike(median(seconds[:half]), median(seconds[half:]), DRIFTED)
