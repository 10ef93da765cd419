"""Replays recorded steps: a policy chooses, and the record says what the target accepted.

Every recorded step is judged by itself: after a shorter draft the next step is still the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

import attrs
import pluggy

from spec_compare.replay.cut import cut_draft, is_recorded
from spec_compare.replay.policies import Policy
from spec_compare.replay.recorded import RecordedPart, RecordedStep, sequence
from spec_compare.replay.times import StepTimes
from spec_core import DraftStep, Part, PluginError, RollbackStep, Sequence, Step, StepRecord, Target, Verdict, hookimpl
from spec_core.errors import SpecError
from spec_core.toolkit import DraftStatistics, PlanFollower

VIEWS = {"draft": DraftStep, "rollback": RollbackStep}
"""What the hooks that a replay calls see of a step."""


@attrs.define
class Replayed:
    """Effect of a policy on recorded steps.

    choices: sequences of steps in which it might choose. same: chosen as recorded. censored: choices that allow more
    than was recorded; they count as recorded. draft_statistics: of the steps in which every sequence generates.
    seconds: of such steps, by their drafted tokens. plain_seconds: of plain decoding for the same tokens.
    """

    choices: int = 0
    same: int = 0
    censored: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0
    draft_statistics: DraftStatistics = attrs.field(factory=DraftStatistics)


@attrs.define(eq=False)
class Player:
    """Replays the steps of one run. before: what the step before took; None at the start."""

    policy: Policy
    target: Target
    proposals: dict[str, frozenset[str]]
    times: StepTimes
    replayed: Replayed
    before: StepRecord | None = None
    _follower: PlanFollower = attrs.field(init=False)
    _hooks: pluggy.PluginManager = attrs.field(init=False)
    _running: dict[int, Sequence] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._hooks = pluggy.PluginManager(hookimpl.project_name)
        self._hooks.register(self.policy.plugin, self.policy.name)
        self._follower = PlanFollower([self.policy.name])

    def play(self, steps: Iterable[RecordedStep]) -> None:
        steps = [*steps]
        exact = [step.before for step in steps[1:]]  # what each took, as the one after it knew
        for recorded, whole in zip_longest(steps, exact):
            step = self._begin(recorded)
            follower = self._follower
            follower.begin([part.seq for part in step.parts])
            follower.apply(step)
            if step.drafting and not follower.following:
                self._call("draft", step)
            follower.take(step)
            for recorded_part, part in zip(recorded.parts, step.parts, strict=True):
                self._judge(recorded_part, part)
            changed = sum(part.drafted for part in step.parts) != recorded.drafted
            step.rows["target"] = sum(len(part.pending) + part.drafted for part in step.parts)
            step.priced.update(recorded.priced)
            if not follower.following:
                self._call("rollback", step)
            self._end(recorded, step, None if changed else whole, changed)

    def _begin(self, recorded: RecordedStep) -> Step:
        """The step as the policy finds it."""
        records = self._follower.records
        step = Step(self.target, self.proposals, number=recorded.number, last_record=self.before, records=records)
        step.trees = any(part.draft is not None and part.draft.parents is not None for part in recorded.parts)
        for part in recorded.parts:
            step.add(self._part(part))
        return step

    def _part(self, recorded: RecordedPart) -> Part:
        seq = self._sequence(recorded)
        decides = recorded.start + recorded.rows == len(seq.tokens)
        return Part(seq, recorded.start, [0] * recorded.rows, decides, recorded.budget, recorded.budget)

    def _sequence(self, recorded: RecordedPart) -> Sequence:
        """The running sequence of this text: plugins keep data about it."""
        seq = self._running.get(recorded.text.number)
        if seq is None:
            seq = self._running[recorded.text.number] = sequence(recorded.text, recorded.output)
        return seq

    def _call(self, hook: str, step: Step) -> None:
        step.phase, step.plugin = hook, self.policy.name
        try:
            getattr(self._hooks.hook, hook, lambda step: None)(step=VIEWS[hook](step))
        except SpecError:
            raise
        except Exception as error:
            raise PluginError(self.policy.name, hook, error) from error

    def _judge(self, recorded: RecordedPart, part: Part) -> None:
        """Give the part what is left of the recorded draft, and what the target accepted of it."""
        left = cut_draft(recorded, part.limits, self._drafters)
        part.draft, part.pieces = left.draft, left.pieces
        part.emitted = recorded.text.tokens[recorded.output :][: min(recorded.emitted, len(left.path) + 1)]
        if part.emitted:
            part.full_verdict = Verdict(left.path, part.emitted[-1])
            part.verdict = Verdict(left.path[: len(part.emitted)], part.emitted[-1])
        if recorded.budget:
            self.replayed.choices += 1
            self.replayed.same += is_recorded(recorded, part.limits, self._drafters)
            self.replayed.censored += left.censored

    @property
    def _drafters(self) -> Iterator[str]:
        return (name for name, kinds in self.proposals.items() if kinds)

    def _end(self, recorded: RecordedStep, step: Step, exact: float | None, changed: bool) -> None:
        """exact: seconds of the whole step, None if not known. changed: it has another draft than the recorded one."""
        drafted, batch, times = sum(part.drafted for part in step.parts), len(step.parts), self.times
        seconds, whole = dict(recorded.seconds), recorded.parts[0].seconds
        if exact is not None:
            whole = exact
        elif changed and batch in times.whole:
            seconds["verify"], whole = times.verify[batch](drafted), times.whole[batch](drafted)
        self.before = self._follower.end(step, whole, seconds, step.rows["target"])
        if recorded.generates:
            for part in step.parts:
                self.replayed.draft_statistics.add(part)
            if batch in times.plain:
                self.replayed.seconds += times.whole[batch](drafted)
                self.replayed.plain_seconds += times.plain[batch](0) * sum(len(p.emitted) for p in step.parts) / batch
        for recorded_part, part in zip(recorded.parts, step.parts, strict=True):
            emitted = recorded_part.text.tokens[recorded_part.output :][: recorded_part.emitted]
            list.extend(part.seq.tokens, emitted)
