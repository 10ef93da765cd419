"""A machine, a drafter and texts on a simulated clock, for a planner that reads none."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
from spec_control.acceptance import TextStats
from spec_control.account import Account
from spec_control.planner import Planner

from spec_core import DraftAttempt, DraftPlan, StepRecord

HOST = 0.05
"""Time of a step beside forward and drafting, in plain forwards."""
LONGEST = 16
"""The budget of a sequence."""


def memory_bound(n: int) -> float:
    return 1 + 0.02 * (n - 1)


def middle(n: int) -> float:
    return 1 + 0.12 * (n - 1)


def compute_bound(n: int) -> float:
    return 1 + 0.5 * (n - 1)


def staircase(n: int) -> float:
    return 1.0 if n == 1 else 1.5 if n <= 4 else 2.2 if n <= 8 else 3.2 + 0.1 * (n - 9)


CURVES = {"memory": memory_bound, "middle": middle, "compute": compute_bound, "stepped": staircase}
DRAFTING = {"memory": 0.06, "middle": 0.10, "compute": 0.08, "stepped": 0.10}
"""Time of a draft beside that of its rows."""

Right = Callable[["Simulation", int], bool]
"""Is the i-th token of the next draft right?"""


def never(simulation, i):
    return False


def always(simulation, i):
    return True


def until_trusted(simulation, i):
    """Right while it is granted little, wrong as soon as it is granted much."""
    return simulation.granted < 6


def alternating(simulation, i):
    return simulation.step % 2 == 0


def chance(rate: float) -> Right:
    return lambda simulation, i: simulation.rng.random() < rate


@attrs.define
class Simulation:
    """A text that never ends, and a drafter that drafts as much as it may.

    curve: time of a forward by its rows, in plain forwards. right: see ``Right``. drafting: time of a draft.
    speed: factor of all times by step. noise: standard deviation of the factor of a step. own: plain forwards that a
    plan takes. price: it asks for the price.
    calls: plans that were made. granted: length that the present step allows. spent, emitted, plain, drafted: by step.
    """

    curve: Callable[[int], float]
    right: Right
    drafting: float = 0.1
    speed: Callable[[int], float] = lambda step: 1.0
    noise: float = 0.0
    seed: int = 0
    own: float = 0.1
    price: bool = False
    planner: Planner = attrs.field(factory=lambda: Planner(Account()))
    step: int = 0
    granted: int = 0
    calls: int = 0
    number: int = 0
    spent: list[float] = attrs.field(factory=list)
    emitted: list[int] = attrs.field(factory=list)
    plain: list[float] = attrs.field(factory=list)
    drafted: list[int] = attrs.field(factory=list)
    rng: random.Random = attrs.field(init=False)
    _records: list[StepRecord] = attrs.field(factory=list)
    _plan: DraftPlan = attrs.field(factory=lambda: DraftPlan({}))
    _left: int = 0
    _lost: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.planner.begin(["drafter"])

    def run(self, steps: int) -> Simulation:
        for _ in range(steps):
            self._step()
        return self

    def begin_text(self) -> None:
        """Another sequence follows the present one."""
        self.number, self._left = self.number + 1, 0

    def _step(self) -> None:
        called = self._left == 0 or self._lost > self._plan.loss_max
        if called:
            self._make_plan()
        self._left -= 1
        limits = self._plan.limits_of(self.number)
        self.granted = (limits["drafter"].length or 0) if limits else 0
        record = self._record(self.granted, self.own if called else 0.0, self._plan.is_plain and not called)
        self._records.append(record)
        self._lost = max(0.0, self._lost + self._plan.loss_of(record))

    def _make_plan(self) -> None:
        planner, self.calls = self.planner, self.calls + 1
        planner.learn(self._records, "auto")
        self._records.clear()
        self._plan = planner.plan({self.number: TextStats(("drafter",), LONGEST)}, 1, trees=False)
        self._left, self._lost = self._plan.steps, 0.0

    def _record(self, k: int, own: float, plain: bool) -> StepRecord:
        """A step with a draft of ``k`` tokens. own: plain forwards that the controller takes."""
        right = [self.right(self, i) for i in range(k)]
        accepted = next((i for i, is_right in enumerate(right) if not is_right), k)
        factor = self.speed(self.step)
        now = factor * max(0.5, self.rng.gauss(1.0, self.noise)) if self.noise else factor
        forward = now * self.curve(1 + k)
        seconds = {"verify": forward, "draft.auto": now * own, "draft.drafter": now * self.drafting * bool(k)}
        total = sum(seconds.values()) + now * HOST
        self.step += 1
        self.spent.append(total)
        self.emitted.append(accepted + 1)
        self.plain.append(factor * (self.curve(1) + HOST))
        self.drafted.append(k)
        attempts = (DraftAttempt(self.number, "drafter", k, k, k, accepted),) if k else ()
        priced = {"drafter"} if self.price else ()
        return StepRecord(self.step, total, seconds, 1, 1 + k, accepted + 1, 100, attempts, priced, plain)

    @property
    def excess(self) -> float:
        """The most that a window's time exceeds (1 + share) times that of plain decoding by, in plain steps."""
        worst = running = 0.0
        for spent, emitted, plain in zip(self.spent, self.emitted, self.plain, strict=True):
            running = max(0.0, running + spent / plain - (1 + self.planner.account.share) * emitted)
            worst = max(worst, running)
        return worst

    @property
    def speedup(self) -> float:
        """Time of plain decoding by the time that was spent."""
        tokens = sum(e * p for e, p in zip(self.emitted, self.plain, strict=True))
        return tokens / sum(self.spent)
