"""Controllers that break one promise each, beside a healthy one."""

from __future__ import annotations

import attrs

from spec_core import Compat, DraftPlan, Limit, Sampling, hookimpl


@attrs.define(eq=False)
class Halves:
    """Healthy: every other step of a sequence drafts half."""

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step) -> None:
        halves = {}
        for part in step.parts:
            if part.budget and part.seq.verdict_count % 2:
                self.shorten(step, part.seq, part.budget)
                halves[part.seq.number] = dict.fromkeys(step.methods, Limit(part.budget // 2))
        if halves:
            step.plan(DraftPlan(dict.fromkeys(step.methods, Limit()), halves))

    def shorten(self, step, seq, budget) -> None:
        """Called for each sequence whose draft is halved."""


class Raises(Halves):
    """Raises where it has something to limit."""

    def shorten(self, step, seq, budget):
        raise AssertionError("not expected")


class SaysNothing(Halves):
    """Does not say that it drafts nothing."""

    @hookimpl
    def compat(self):
        return Compat()

    def shorten(self, step, seq, budget):
        """Its limit would be refused."""


class MakesItGreedy(Halves):
    """Sets a sequence to temperature 0, so that more drafts are right."""

    def shorten(self, step, seq, budget):
        if len(seq.tokens) > seq.prompt_len + 14:
            seq.sampling = Sampling(temperature=0.0)
        super().shorten(step, seq, budget)


@attrs.define(eq=False)
class CountsThemIn(Halves):
    """Numbers sequences by their slot and has places for the first ones only."""

    places: list = attrs.field(factory=list)

    def shorten(self, step, seq, budget):
        if seq not in self.places:
            self.places.append(seq)
        assert len(self.places) < 4, "no place"
        super().shorten(step, seq, budget)


@attrs.define(eq=False)
class KeepsThemAll(Halves):
    """Keeps every sequence that it limited."""

    kept: list = attrs.field(factory=list)

    def shorten(self, step, seq, budget):
        self.kept.append(seq)
        super().shorten(step, seq, budget)


@attrs.define(eq=False)
class RefusesItsOwnDefault(Halves):
    """Its setting's default is none of its type."""

    width: int = 2.5
