"""A machine, a drafter and a text on a simulated clock, for a controller that reads none."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
from spec_control.pacer import Pacer
from spec_control.track import Done, Track

HOST = 0.05
"""Time of a step beside forward and drafting, in plain forwards."""


def memory_bound(n: int) -> float:
    return 1 + 0.02 * (n - 1)


def middle(n: int) -> float:
    return 1 + 0.12 * (n - 1)


def compute_bound(n: int) -> float:
    return 1 + 0.5 * (n - 1)


def stepped(n: int) -> float:
    return 1.0 if n == 1 else 1.5 if n <= 4 else 2.2 if n <= 8 else 3.2 + 0.1 * (n - 9)


CURVES = {"memory": memory_bound, "middle": middle, "compute": compute_bound, "stepped": stepped}
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
    """One sequence and one method that drafts as much as it may.

    speed: {step: factor of all times} at the moment. noise: standard deviation of a step's time, relative.
    spent, emitted, plain: of every step, its time, its tokens, and the time of a plain step in its place.
    """

    curve: Callable[[int], float]
    right: Right
    drafting: float = 0.1
    speed: Callable[[int], float] = lambda step: 1.0
    noise: float = 0.0
    seed: int = 0
    pacer: Pacer = attrs.field(factory=Pacer)
    step: int = 0
    granted: int = 0
    spent: list[float] = attrs.field(factory=list)
    emitted: list[int] = attrs.field(factory=list)
    plain: list[float] = attrs.field(factory=list)
    drafted: list[int] = attrs.field(factory=list)
    track: Track = attrs.field(init=False)
    rng: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.track = Track((self.pacer.arm("drafter"),))
        self.rng = random.Random(self.seed)

    def run(self, steps: int) -> Simulation:
        for _ in range(steps):
            self._step()
        return self

    def _step(self) -> None:
        grants = self.pacer.plan([self.track], 1, 100)[0]
        k = self.granted = grants[0].length if grants else 0
        right = [self.right(self, i) for i in range(k)]
        accepted = next((i for i, r in enumerate(right) if not r), k)
        factor = self.speed(self.step)
        now = factor * max(0.5, self.rng.gauss(1.0, self.noise)) if self.noise else factor
        forward, drafting, host = now * self.curve(1 + k), now * self.drafting * bool(k), now * HOST
        if k:
            self.pacer.learn(self.track, self.track.arms[0], k, k, accepted, k)
        used = {self.track.arms[0]: k} if k else {}
        done = Done(1, 100, 1 + k, accepted + 1, used, cold=0, stands=1)
        self.pacer.settle(done, forward, forward + drafting + host)
        self.step += 1
        self.spent.append(forward + drafting + host)
        self.emitted.append(accepted + 1)
        self.plain.append(factor * (self.curve(1) + HOST))
        self.drafted.append(k)

    @property
    def excess(self) -> float:
        """The most that a window's time exceeds (1 + income) times that of plain decoding by, in plain steps."""
        worst = running = 0.0
        for spent, emitted, plain in zip(self.spent, self.emitted, self.plain, strict=True):
            running = max(0.0, running + spent / plain - (1 + self.pacer.ledger.income) * emitted)
            worst = max(worst, running)
        return worst

    @property
    def speedup(self) -> float:
        """Time of plain decoding by the time that was spent."""
        tokens = sum(e * p for e, p in zip(self.emitted, self.plain, strict=True))
        return tokens / sum(self.spent)
