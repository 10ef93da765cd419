"""Follows a controller's plan, and keeps what steps took until a controller is called again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from time import thread_time

import attrs

from spec_core.contract.batch import Part
from spec_core.contract.plan import DraftPlan
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.step_record import DraftAttempt, StepRecord
from spec_core.contract.values import Draft

RECORDS_MAX = 4096
"""Records that are kept for a controller; of more, the newest."""
AGREE = 0.95
"""Share of a step for which its thread has a processor, from which on the clock and the processor agree."""
WORKING = 0.5
"""Share of a step for which its thread has a processor, from which on the thread itself does the step's work."""
TINY = 1e-9
"""Share of a step in which its thread did nothing."""
FADE = 0.999
"""Factor of the largest share in each step: it is forgotten after some thousands."""


@attrs.define
class OwnTime:
    """The share of a step's time that is its own: another program had its processor for the rest.

    A thread that waits for others in every step, as for the slowest of several threads, has a processor for less than
    the whole step. So its share is compared with the largest one of recent steps, and counts only for a thread that
    works: one that waits for a device or another process has hardly any processor time.
    """

    largest: float = 0.0
    began: float = 0.0

    def begin(self) -> None:
        self.began = thread_time()

    def end(self, total: float) -> float:
        """A step that took ``total`` seconds is over; returns the share of it that is its own, above 0."""
        share = min(1.0, (thread_time() - self.began) / total) if total > 0.0 else 1.0
        self.largest = max(self.largest * FADE, share, TINY)
        own = share / self.largest
        return own if 0.0 < own < AGREE and self.largest >= WORKING else 1.0


def own_time_on(device: str) -> OwnTime | None:
    """The own time of steps on a processor; None for a device, which works while its thread has no processor."""
    return OwnTime() if device.partition(":")[0] == "cpu" else None


@attrs.define
class PlanFollower:
    """What a loop that makes steps does about plans: ``begin``, ``apply``, draft hooks, ``take``, then ``end``.

    controllers: of the run; without any nothing is kept.
    planners: plugins that have made a plan, or were installed for it: a run goes on without them.
    own_time: tells the own time of steps where the thread that makes them computes them too; None elsewhere.
    following: the present step follows the plan of an earlier one, so that no controller is called in it.
    plain: no method may draft in it. records: see ``Step``.
    """

    controllers: Collection[str] = ()
    own_time: OwnTime | None = None
    planners: Collection[str] = ()
    following: bool = False
    plain: bool = False
    records: list[StepRecord] = attrs.field(factory=list)
    _plan: DraftPlan | None = None
    _controller: str = ""
    _steps_left: int = 0
    _lost: float = 0.0
    _numbers: list[int] = attrs.field(factory=list)
    _is_plain: bool | None = None

    def forget(self, plugin: str) -> None:
        """A plugin was switched off. A controller's plan ends with it."""
        if plugin in self.controllers:
            self.controllers = frozenset(self.controllers) - {plugin}
            self._plan, self.following, self.plain = None, False, False
            self.records.clear()

    def begin(self, running: list[Sequence]) -> None:
        """A step of these sequences begins."""
        if not self.controllers:
            return
        if self.own_time is not None:
            self.own_time.begin()
        numbers = [seq.number for seq in running]
        if self._plan is not None and (not self._lasts() or numbers != self._numbers):
            self._plan = None
        self._numbers = numbers
        self.following = self._plan is not None
        if self._plan is not None:
            self._steps_left -= 1
            if self._is_plain is None:
                self._is_plain = self._plan.is_plain and self._controls_all(running)
        self.plain = self.following and bool(self._is_plain)

    def _lasts(self) -> bool:
        assert self._plan is not None
        return self._steps_left > 0 and self._lost <= self._plan.loss_max

    def _controls_all(self, running: Iterable[Sequence]) -> bool:
        return all(seq.wants(self._controller) for seq in running)

    def apply(self, step: Step) -> None:
        """Set the limits of a step that follows a plan and may draft."""
        if self._plan is not None and not self.plain:
            step.apply(self._plan, self._controller)

    def take(self, step: Step) -> None:
        """The draft hooks were called: follow the plan that was made, and forget the records that were read."""
        if self.following or not step.drafting:
            return
        self.records.clear()
        if not self.controllers:
            return
        self._plan, self._controller, self._lost = step.draft_plan, step.planner, 0.0
        if self._plan is not None:
            self.planners = {*self.planners, self._controller}
        self._steps_left = self._plan.steps - 1 if self._plan is not None else 0
        self._is_plain = None

    def end(self, step: Step, total: float, seconds: Mapping[str, float], rows: int) -> StepRecord:
        """A step is over; returns what it took. total, seconds, rows: as in ``StepRecord``."""
        if not self.controllers:
            return StepRecord(step.number, total, seconds, len(step.parts), rows)
        if self.own_time is not None and (share := self.own_time.end(total)) < 1.0:
            total, seconds = total * share, {label: each * share for label, each in seconds.items()}
        record = StepRecord(step.number, total, seconds, len(step.parts), rows)
        record.tokens, record.depth, record.attempts = outcome(step.parts)
        record.priced, record.plain = step.priced, self.plain
        if step.drafting or self.following:
            self.records.append(record)
            if len(self.records) > RECORDS_MAX:
                del self.records[0]
        if self._plan is not None and step.drafting:
            self._lost = max(0.0, self._lost + self._plan.loss_of(record))
        return record


def outcome(parts: Iterable[Part]) -> tuple[int, int | None, tuple[DraftAttempt, ...]]:
    """What the sequences of a step did: tokens, depth and attempts of ``StepRecord``."""
    tokens, depth, prompt = 0, 0, False
    tried: tuple[DraftAttempt, ...] = ()
    for part in parts:
        tokens += len(part.emitted)
        depth = max(depth, part.start)
        if not part.decides or part.start < part.seq.prompt_len:
            prompt = True
        if part.draft is not None:
            tried += tuple(attempts(part))
    return tokens, None if prompt else depth, tried


def attempts(part: Part) -> Iterator[DraftAttempt]:
    """What each method drafted in a part that has a draft and a verdict."""
    if part.full_verdict is None:
        return
    path, alone = part.full_verdict.path, len(part.pieces) == 1
    for piece in part.pieces:
        draft, accepted = piece.draft, None
        if alone:
            accepted = path
        elif piece.was_tested(path):
            accepted = piece.accepted_in(path)
        budget, count = part.length_max(piece.source), None if accepted is None else len(accepted)
        number, tokens = part.seq.number, len(draft.ids)
        yield DraftAttempt(number, piece.source, budget, tokens, draft.depth, count, judge_chances(draft, accepted))


def judge_chances(draft: Draft, accepted: tuple[int, ...] | None) -> tuple[tuple[float, bool], ...] | None:
    """``DraftAttempt.judged``. accepted: tokens of the draft that were accepted; None if none was tested."""
    chances, parents = draft.confidence, draft.parents
    if chances is None or accepted is None:
        return None if chances is None else ()
    if parents is None:
        return tuple((chance, i < len(accepted)) for i, chance in enumerate(chances[: len(accepted) + 1]))
    kept = {-1, *accepted}
    return tuple((chances[i], i in kept) for i, parent in enumerate(parents) if parent in kept)
