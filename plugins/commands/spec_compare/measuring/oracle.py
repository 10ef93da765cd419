"""A contender that knows the text: it shows what the loop costs if every draft is accepted."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from spec_commands import common

from spec_compare.measuring.contenders import ContenderPlan
from spec_compare.measuring.measure import Baseline, Contender, Watch, batches, lap
from spec_compare.records.record import ORACLE
from spec_core import Draft, DraftStep, Run, Sequence, StashKey, Step, hookimpl
from spec_core.commands import Settings

Texts = dict[tuple[int, ...], list[int]]
"""{prompt: prompt and output of plain decoding}."""


@attrs.define(eq=False)
class Oracle:
    """Drafts the tokens of plain decoding, ``length`` in each step; nothing if it does not know the text."""

    _texts: Texts
    length: int
    _known: StashKey[list[int]] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            at = len(seq.tokens)
            if ahead := self._text(seq)[at : at + min(budget, self.length)]:
                step.propose(seq, Draft(ahead))

    def _text(self, seq: Sequence) -> list[int]:
        known = seq.stash.get(self._known)
        if known is None:
            known = seq.stash[self._known] = self._texts.get(tuple(seq.tokens[: seq.prompt_len]), [])
        return known


@attrs.define(eq=False)
class Recorder:
    """Collects the texts of a run."""

    texts: Texts = attrs.field(factory=dict)

    def look(self, step: Step) -> None:
        for seq in (part.seq for part in step.parts if part.emitted):
            self.texts[tuple(seq.tokens[: seq.prompt_len])] = seq.tokens


def entrants(entered: list[ContenderPlan], lengths: tuple[int, ...]) -> list[ContenderPlan]:
    """Oracles of each draft length, for every plain decoding of a comparison."""
    plain = [e for e in entered if e.contender.name == e.contender.baseline]
    return [_entrant(e, length, _texts(e.contender)) for e in plain for length in dict.fromkeys(lengths)]


def _entrant(plain: ContenderPlan, length: int, texts: Callable[[], Texts]) -> ContenderPlan:
    setup, longest = plain.contender.setup, plain.settings.table["draft_max"]
    table = {**plain.settings.table, "draft_max": attrs.evolve(longest, value=max(longest.value, length))}
    settings = Settings(table)

    def make() -> Run:
        methods = [(ORACLE, Oracle(texts(), length))]
        return common.run_of(
            setup.target, settings, methods, False, max_sequences=setup.request_settings.batch, **_reuse(setup)
        )

    name = setup.baseline.replace("plain", f"{ORACLE} {length}", 1)
    return ContenderPlan(Contender(name, make, setup, remembers=False), settings, [ORACLE], plain.origin)


def _reuse(baseline: Baseline) -> dict[str, bool]:
    return {"reuse": baseline.request_settings.reuse_turns}


def _texts(plain: Contender) -> Callable[[], Texts]:
    """The texts of plain decoding, generated on the first call."""
    recorder = Recorder()

    def texts() -> Texts:
        if not recorder.texts:
            with plain.make() as run:
                run.observe(recorder.look)
                for group in batches(plain.setup.prompts, plain.setup.request_settings.batch):
                    lap(plain.name, run, Watch(), group, plain.setup.request_settings, -1)
        return recorder.texts

    return texts
