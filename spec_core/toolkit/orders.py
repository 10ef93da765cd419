"""What a controller said of the steps that follow, for a loop that makes them: rests, and limits that hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from spec_core.contract.batch import Part
from spec_core.contract.hold import Hold
from spec_core.contract.sequence import Sequence
from spec_core.contract.spent import Spent, Tried
from spec_core.contract.step import Step

NOTHING = Hold(0, 0.0, 0.0, frozenset(), False, {})
"""Before ``hold`` was called."""


@attrs.define
class Orders:
    """Follows ``step.rest`` and ``step.hold``, and keeps what steps took until controllers are asked again.

    controllers: those of the run; without any nothing is kept, and with several nothing is held.
    resting, holding: whether the present step belongs to a rest, or is drafted as the one before.
    passed: see ``Step``.
    """

    controllers: Collection[str] = ()
    resting: bool = False
    holding: bool = False
    passed: list[Spent] = attrs.field(factory=list)
    _rest: int = 0
    _without: frozenset[str] = frozenset()
    _joining: bool = False
    _known: set[int] = attrs.field(factory=set)
    _newest: int = -1
    _hold: int = 0
    _after: int = 0
    _held: dict[int, Part] = attrs.field(factory=dict)
    _said: Hold = NOTHING
    _lost: float = 0.0
    _unlisted: int = 0

    def begin(self, running: list[Sequence], proposals: Mapping[str, frozenset[str]]) -> None:
        """A step of these sequences begins, the one that joined last at the end. proposals: as in ``Step``."""
        if self._after and not self._hold:  # what was held has come to its end
            self._begin_rest(self._after, self._said.without, False, self._held)
            self._after = 0
        if self._rest and running and running[-1].number != self._newest:
            self._join(running, proposals)
        self.resting = bool(self._rest)
        if self.resting:
            self._rest -= 1
        self.holding = bool(self._hold and running) and not self.resting and self._holds(running, proposals)

    def _begin_rest(self, steps: int, without: frozenset[str], joining: bool, numbers: Iterable[int]) -> None:
        """numbers: of the sequences that run; others join."""
        self._rest, self._without, self._joining = steps, without, joining
        self._known, self._newest = set(numbers), -1

    def _join(self, running: list[Sequence], proposals: Mapping[str, frozenset[str]]) -> None:
        """A sequence that joins and that a method serves ends a rest, unless ``rest`` was meant for it too."""
        self._newest = running[-1].number
        for seq in running:
            if seq.number not in self._known:
                self._known.add(seq.number)
                controlled = self._controls(seq)
                if controlled:
                    seq.drop(self._without, proposals)
                stays = self._joining and controlled
                if not stays and any(seq.wants(name) for name, kinds in proposals.items() if kinds):
                    self._rest = 0
                    return

    def _controls(self, seq: Sequence) -> bool:
        """Whether the orders stand for a sequence; its request may want no control."""
        return all(seq.wants(name) for name in self.controllers)

    def _holds(self, running: list[Sequence], proposals: Mapping[str, frozenset[str]]) -> bool:
        """A loss ends it, and so does a sequence that joins or ends, if it does not stand for the one that follows."""
        same = [seq.number for seq in running] == [*self._held]
        if self._over() or not (same or self._follows(running, proposals)):
            self._hold = self._after = 0
            return False
        self._hold -= 1
        return True

    def _over(self) -> bool:
        """Whether the steps so far end it: by what they lost, or because their forwards do not tell their worth."""
        plan = self._said
        return self._lost > plan.loss or (plan.unlisted is not None and self._unlisted >= plan.unlisted)

    def _follows(self, running: list[Sequence], proposals: Mapping[str, frozenset[str]]) -> bool:
        """Whether a sequence takes the place of the only one."""
        if not self._said.joining or len(running) != 1 or not self._controls(running[0]):
            return False
        [part] = self._held.values()
        self._held = {running[0].number: part}
        running[0].drop(self._said.without, proposals)
        return True

    def repeat(self, step: Step) -> None:
        """Limits and prices of a step that is drafted as the one before."""
        if self.holding:
            for part in step.parts:
                before = self._held[part.seq.number]
                part.limits, part.prices = before.limits, before.prices

    def take(self, step: Step) -> None:
        """The draft hooks were called: take over what a controller said, and forget what it has read."""
        if self.resting or self.holding or not step.drafting:
            return
        self.passed.clear()
        self._rest = self._hold = self._after = 0
        if step.resting is not None:
            self._begin_rest(*step.resting, (part.seq.number for part in step.parts))
        elif step.held is not None and len(self.controllers) == 1:
            self._said, self._hold, self._lost, self._unlisted = step.held, step.held.steps, 0.0, 0
            self._after = step.held.rest
            self._held = {part.seq.number: part for part in step.parts}

    def over(self, step: Step, whole: float, seconds: Mapping[str, float], rows: int) -> Spent:
        """A step is over; returns what it took. whole, seconds, rows: as in ``Spent``."""
        spent = Spent(step.number, whole, seconds, len(step.parts), rows)
        if not self.controllers:
            return spent
        spent.resting = self.resting
        if not (self.resting and self._rest):  # steps within a rest shall take as long as those without a controller
            spent.tokens, spent.depth, spent.tried = outcome(step.parts)
            spent.priced = step.priced
        if self.resting and self._rest and self.passed and self.passed[-1].resting:
            self.passed[-1] = spent
        elif step.drafting or self.resting:
            self.passed.append(spent)
        if self.holding and step.drafting:
            self._lost = max(0.0, self._lost + self._said.loss_of(spent))
            self._unlisted += rows not in self._said.of_forward
        return spent


def outcome(parts: Iterable[Part]) -> tuple[int, int | None, tuple[Tried, ...]]:
    """What the sequences of a step did: tokens, depth and tried of ``Spent``."""
    tokens, depth, prompt = 0, 0, False
    tried: tuple[Tried, ...] = ()
    for part in parts:
        tokens += len(part.emitted)
        if part.start > depth:
            depth = part.start
        if not part.decides or part.start < part.seq.prompt_len:
            prompt = True
        if part.draft is not None:
            tried += tuple(attempts(part))
    return tokens, None if prompt else depth, tried


def attempts(part: Part) -> Iterator[Tried]:
    """What each method drafted in a part that has a draft and a verdict."""
    if part.uncut is None:
        return
    limits, path, alone = part.limits, part.uncut.path, len(part.pieces) == 1
    whole = min(part.budget, limits.get(None, part.budget))
    for piece in part.pieces:
        draft, accepted = piece.draft, None
        if alone:
            accepted = len(path)
        elif piece.was_tested(path):
            accepted = len(piece.own(path))
        budget = min(whole, limits.get(piece.source, whole))
        yield Tried(part.seq.number, piece.source, budget, len(draft.ids), draft.depth, accepted)
