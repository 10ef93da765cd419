"""Steps that were made, until the controller learns from them: several at once take less time than one at a time."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from spec_control.pacer import Pacer
from spec_control.track import Done, Grant, Grants, Track
from spec_core import Part, Piece, Sequence, Spent, StashKey, Step


@attrs.define
class Memory:
    """Of one sequence. number: the request's, since a slot outlives it. grants: what it may draft at the moment."""

    number: int
    track: Track
    grants: Grants = ()


@attrs.define(eq=False)
class Made:
    """A step. parts: until they were learned from.

    own, last: time of this step, and of the last one of the rest that followed it; known in the next step.
    """

    done: Done
    parts: list[Part]
    priced: set[str]
    own: Spent | None = None
    last: Spent | None = None


@attrs.define(eq=False)
class Log:
    """key: of the controller's Memory in ``seq.stash``. controller: its name in the run."""

    key: StashKey[Memory]
    controller: str = ""
    made: list[Made] = attrs.field(factory=list)

    def add(self, step: Step, depth: int) -> None:
        """After the verdicts. depth: positions of the longest sequence."""
        parts = step.parts
        done = Done(step.number, len(parts), depth, step.rows["target"], 0, {}, False, 1)
        self.made.append(Made(done, parts, step.priced))

    def timed(self, step: Step) -> None:
        """The time of the last step is known now."""
        if self.made and step.before_rest is not None and step.before_rest.number == self.made[-1].done.number:
            self.made[-1].own, self.made[-1].last = step.before_rest, step.before

    def learn(self, pacer: Pacer) -> list[Made]:
        """Learn what was accepted; returns the steps whose time is known, oldest first, and keeps the last without."""
        for made in self.made:
            if made.parts:
                self._judge(made, pacer)
        timed = [made for made in self.made if made.own is not None]
        self.made = self.made[-1:] if self.made and self.made[-1].own is None else []
        return timed

    def _judge(self, made: Made, pacer: Pacer) -> None:
        if not any(part.draft is not None and not part.seq.wants(self.controller) for part in made.parts):
            for part in made.parts:
                made.done.tokens += len(part.emitted)
                memory = part.seq.stash.get(self.key)
                if memory is not None:
                    self._part(memory, part, made, pacer)
                    made.done.track = memory.track if len(made.parts) == 1 else None
        else:  # the time of a step in which somebody drafts without control says nothing about a plan
            made.done.rows = 0
        made.parts = []

    def _part(self, memory: Memory, part: Part, made: Made, pacer: Pacer) -> None:
        """Each method learns from its own piece of the draft; methods after the first piece may not have been asked."""
        drafted, begun = part.draft is not None and part.uncut is not None, False
        for grant in memory.grants:
            piece = next((p for p in part.pieces if p.source == grant.arm.name), None) if drafted else None
            if piece is not None:
                judge(memory, grant, part, piece, made.done, pacer)
                grant.arm.priced = grant.arm.name in made.priced
            if piece is not None or not begun:
                grant.arm.asked(piece is not None)
            begun = begun or piece is not None


def judge(memory: Memory, grant: Grant, part: Part, piece: Piece, done: Done, pacer: Pacer) -> None:
    """Learn what was accepted of a piece, unless the token before it was rejected: then it was not tested."""
    arm, draft, uncut = grant.arm, piece.draft, part.uncut
    assert uncut is not None
    rows = len(draft.ids)
    depth = rows if draft.parents is None else deepest_path(draft.parents)
    done.cold |= arm.name not in memory.track.rates
    done.drafted[arm] = done.drafted.get(arm, 0) + depth
    if piece.reached(uncut.path):
        granted = min(grant.length, part.budget)
        accepted = len(piece.own(uncut.path))
        pacer.learn(memory.track, arm, rows, depth, accepted, granted)
        if depth < granted:
            arm.stopped(depth, accepted == depth, grant.price)


def deepest_path(parents: Iterable[int]) -> int:
    """Tokens of the longest path of a tree."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths)


def deepest(parts: list[Part]) -> int | None:
    """Positions of the longest sequence; None where rows are of a prompt, not of a text that has begun."""
    depth = 0
    for part in parts:
        if not part.decides or len(part.seq.tokens) == part.seq.prompt_len:
            return None
        if part.start > depth:
            depth = part.start
    return depth


def standing(step: Step, before: Spent) -> dict[str, float]:
    """Seconds that the hooks of each method took in a step before: a run without methods has none of it."""
    took: dict[str, float] = {}
    for label, spent in before.seconds.items():
        name = label.partition(".")[2]
        if step.proposals.get(name):
            took[name] = took.get(name, 0.0) + spent
    return took


def memory_of(seq: Sequence, key: StashKey[Memory]) -> Memory | None:
    """What is known of this request; None where the slot still has that of another."""
    found = seq.stash.get(key)
    return found if found is not None and found.number == seq.number else None
