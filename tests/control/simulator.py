"""A machine, a drafter and a text on a simulated clock, for a controller that reads none."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
from spec_control.hold import UNKNOWN
from spec_control.learning import Learner, Memory
from spec_control.pacer import Pacer
from spec_control.track import Done, Track

from spec_core import Spent
from spec_core.contract.hold import Hold
from spec_core.contract.spent import Tried

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
        k, accepted, forward, whole = self._made(grants[0].length if grants else 0)
        if k:
            self.pacer.learn(self.track, self.track.arms[0], k, k, accepted, k)
        used = {self.track.arms[0]: k} if k else {}
        done = Done(1, 100, 1 + k, accepted + 1, used, cold=0, stands=1)
        self.pacer.settle(done, forward, whole)

    def _made(self, k: int, own: float = 0.0) -> tuple[int, int, float, float]:
        """A step with a draft of ``k`` tokens. Returns k, how many are accepted, times of the forward and in all.

        own: plain forwards that the controller takes.
        """
        self.granted = k
        right = [self.right(self, i) for i in range(k)]
        accepted = next((i for i, r in enumerate(right) if not r), k)
        factor = self.speed(self.step)
        now = factor * max(0.5, self.rng.gauss(1.0, self.noise)) if self.noise else factor
        forward = now * self.curve(1 + k)
        whole = forward + now * (self.drafting * bool(k) + HOST + own)
        self.step += 1
        self.spent.append(whole)
        self.emitted.append(accepted + 1)
        self.plain.append(factor * (self.curve(1) + HOST))
        self.drafted.append(k)
        return k, accepted, forward, whole

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


@attrs.define
class Planned(Simulation):
    """The same, with plans that hold and rests, as in a run: the controller learns from all their steps at once.

    own: plain forwards that it takes where it is called. calls: how often that was.
    """

    own: float = 0.1
    calls: int = 0
    learner: Learner = attrs.field(init=False)
    _passed: list[Spent] = attrs.field(factory=list)
    _ahead: int = 0
    _then: int = 0
    _resting: bool = False
    _loss: float = 0.0
    _past: float = 0.0
    _unlisted: int = 0

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.learner = Learner(self.pacer, {0: Memory(self.track)})

    def _step(self) -> None:
        lost = not self._resting and (self._past > self._loss or self._unlisted >= UNKNOWN)
        if self._ahead == 0 and self._then and not lost:
            self._resting, self._ahead, self._then = True, self._then, 0
        called = self._ahead == 0 or lost
        if called:
            self._plan()
        else:
            self._ahead -= 1
        own, resting = self.own * called, self._resting and not called
        grants = () if resting else self.learner.memories[0].grants
        k, accepted, forward, whole = self._made(grants[0].length if grants else 0, own)
        tried = (Tried(0, "drafter", k, k, k, accepted),) if k else ()
        seconds = {"verify": forward, "draft.auto": whole * own / (self.curve(1 + k) + HOST + own)}
        spent = Spent(self.step, whole, seconds, 1, 1 + k, accepted + 1, 100, tried, resting=resting)
        if resting and self._ahead and self._passed[-1].resting:
            self._passed.pop()
        self._passed.append(spent)
        if not (called or resting):
            self._past = max(0.0, self._past + self._lost(spent))
            self._unlisted += spent.rows not in self.pacer.shares

    def _lost(self, spent: Spent) -> float:
        """As of a run; nothing is learned while a plan holds."""
        return Hold(0, 0.0, self.pacer.machine.plain, frozenset(), False, self.pacer.shares).loss_of(spent)

    def _plan(self) -> None:
        pacer, self.calls = self.pacer, self.calls + 1
        self.learner.learn(self._passed, "auto", {"drafter": frozenset({"deterministic"})})
        self._passed.clear()
        self.learner.memories[0].grants = pacer.plan([self.track], 1, 100)[0]
        self._resting, self._ahead, self._then = bool(pacer.quiet), pacer.quiet or pacer.hold, pacer.then
        self._loss, self._past, self._unlisted = pacer.loss * pacer.machine.plain, 0.0, 0
