"""Owners of recurrent state that break one promise each; the toy's own owner is the healthy one."""

from __future__ import annotations

import attrs

from spec_core import Compat, Needs, hookimpl
from spec_core.testing import ToyRollback
from spec_core.testing.conformance.drive import feed_tokens
from spec_core.toolkit.drive import open_sequence


@attrs.define(eq=False)
class Owner(ToyRollback):
    """Healthy: picks the state after the last kept draft."""

    @hookimpl
    def rollback(self, step) -> None:
        for seq, verdict in step.verdicts.items():
            self.put_back(step, seq, verdict)

    def put_back(self, step, seq, verdict) -> None:
        if verdict.path:
            seq.slot.state.recurrent = step.output.trace[step.kept_rows(seq)[-1]]


class CountsTheFirstDraftIn(Owner):
    """Takes the first draft for kept when none is."""

    def put_back(self, step, seq, verdict):
        part = step.part(seq)
        if part.drafted:
            seq.slot.state.recurrent = step.output.trace[(step.kept_rows(seq) or [part.first_draft_row])[-1]]


class ThinksNothingIsToBeDone(Owner):
    """Leaves the state alone where every draft was kept: the forward committed pending rows only."""

    def put_back(self, step, seq, verdict):
        if len(verdict.path) < step.part(seq).drafted:
            super().put_back(step, seq, verdict)


class TakesTheLastRow(Owner):
    """Picks the state after the last draft, kept or not."""

    def put_back(self, step, seq, verdict):
        if verdict.path:
            part = step.part(seq)
            seq.slot.state.recurrent = step.output.trace[part.first_draft_row + part.drafted - 1]


@attrs.define(eq=False)
class PutsTheLastOneBack(Owner):
    """In a step without a draft, puts the state of the last rollback back."""

    last: dict = attrs.field(factory=dict, init=False)

    def put_back(self, step, seq, verdict):
        super().put_back(step, seq, verdict)
        if verdict.path:
            self.last[seq] = seq.slot.state.recurrent
        elif seq in self.last and not step.part(seq).drafted:
            seq.slot.state.recurrent = self.last[seq]


class TakesAPromptForADraft(Owner):
    """Knows a draft by the number of rows: K + 1 of them are one, it thinks."""

    def put_back(self, step, seq, verdict):
        super().put_back(step, seq, verdict)
        if len(step.part(seq).pending) == 5:
            seq.slot.state.recurrent = self.target._fresh()


class KeepsAsManyForAll(Owner):
    """Takes the first sequence's number of kept drafts for everybody's."""

    def put_back(self, step, seq, verdict):
        first = next(iter(step.verdicts.values()))
        kept = min(len(first.path), len(verdict.path))
        if kept:
            seq.slot.state.recurrent = step.output.trace[step.kept_rows(seq)[kept - 1]]


class ReadsTheRawVerdict(Owner):
    """Goes along the path as it was before the cut at a stop."""

    def put_back(self, step, seq, verdict):
        part = step.part(seq)
        if part.full_verdict.path:
            seq.slot.state.recurrent = step.output.trace[part.first_draft_row + part.full_verdict.path[-1]]


class KnowsChainsOnly(Owner):
    """Counts kept drafts, though in a tree they do not lie together."""

    def put_back(self, step, seq, verdict):
        if verdict.path:
            part = step.part(seq)
            seq.slot.state.recurrent = step.output.trace[part.first_draft_row + len(verdict.path) - 1]


class LeavesItOut(Owner):
    """Owns the state and does nothing about it."""

    def put_back(self, step, seq, verdict):
        pass


class WaitsForTheTarget(Owner):
    """Acts only where attention rows were dropped before."""

    def put_back(self, step, seq, verdict):
        if len(seq.slot.state.keys) == step.part(seq).end + len(verdict.path):
            super().put_back(step, seq, verdict)


@attrs.define(eq=False)
class RemembersTheSlot(Owner):
    """Puts the last state of a slot back when a text begins on it."""

    states: dict = attrs.field(factory=dict, init=False)

    def put_back(self, step, seq, verdict):
        super().put_back(step, seq, verdict)
        if step.part(seq).start == 0 and seq.slot in self.states:
            seq.slot.state.recurrent = self.states[seq.slot]
        self.states[seq.slot] = seq.slot.state.recurrent


class KeepsWrongCheckpoints(Owner):
    """Keeps the committed state as a checkpoint of the position after the kept drafts."""

    def put_back(self, step, seq, verdict):
        if verdict.path:
            seq.slot.checkpoints[step.part(seq).end + len(verdict.path)] = seq.slot.state.recurrent
        super().put_back(step, seq, verdict)

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            step = rows.step
            if step.part(seq).drafted:
                seq.slot.checkpoints[span.end] = step.output.trace[step.part(seq).first_draft_row]


class ForwardsAgain(Owner):
    """Evaluates the kept tokens again, inside of the hook."""

    def put_back(self, step, seq, verdict):
        super().put_back(step, seq, verdict)
        feed_tokens(step.target, open_sequence(step.target), seq.tokens)


class OwnsMoreThanThereIs(Owner):
    """Names a kind of state that the target does not have."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"recurrent", "convolution"}, needs=Needs(trace="states"), drafts=())


class TakesEveryTarget(Owner):
    """Owns the state of any target, whatever it looks like."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"recurrent"}, needs=Needs(trace="states"), drafts=())


@attrs.define(eq=False)
class RemembersSequences(Owner):
    """Has a dictionary of sequences on the instance."""

    seen: dict = attrs.field(factory=dict, init=False)

    def put_back(self, step, seq, verdict):
        super().put_back(step, seq, verdict)
        self.seen[seq] = verdict


class Raises(Owner):
    """Raises when something is to be put back."""

    def put_back(self, step, seq, verdict):
        assert not verdict.path, "not expected"


@attrs.define(eq=False)
class RefusesItsOwnDefault(Owner):
    """Its setting's default is none of its type."""

    width: int = 2.5
