"""Which reading of a head is right, and which usual cause its file suffers from if that is not the dialect's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from time import process_time
from typing import Any

import attrs

from spec_core import Target
from spec_core.errors import SpecError
from spec_doctor.acceptance import Acceptance, Texts, measure_acceptance
from spec_doctor.scores import Difference, Place, Score, acceptance_of, difference_of, score_reading, write_references

TOKENS, DRAFT = 40, 3
"""Tokens and drafts of a text by which readings are compared."""
LAYER_TEXTS, LAYER_TOKENS, LAYER_SECONDS, PROMISING = 6, 16, 4.5, 2
"""Texts and tokens by which single layers are sorted, with drafts of one token; processor time for that; how many of
the best are compared fully."""
RATIO, ERRORS, ACCEPTED_ERRORS = 1.075, 4.0, 3.0
"""A reading is the right one from this ratio of the chances of the target's tokens on, if their difference has at least
ERRORS standard errors, and that of the accepted tokens ACCEPTED_ERRORS."""
LATER_RATIO = 1.2
"""A reading in which no more first tokens are accepted has to accept this multiple of all tokens: heads of a short
training go on better in a reading that they were not trained in."""
FAR_BETTER = 1.1
"""A single other layer replaces a more usual explanation if it accepts this multiple of its tokens."""
MAP = "token map"
MAPPED, DISTINCT = 0.35, 8
"""Share of tokens that an unknown map explains beyond the accepted ones, and its rows that must be seen."""


@attrs.frozen
class ReadingResult:
    """A reading, None: that of the dialect, and what it accepted; difference: to the dialect's. error: why it could not
    be tried."""

    reading: Any
    acceptance: Acceptance | None = None
    difference: Difference | None = None
    error: str = ""

    @property
    def name(self) -> str:
        return "as its dialect says" if self.reading is None else str(self.reading.name)

    @property
    def ratio(self) -> float:
        """The chance that it gives to the target's tokens, over that of the dialect's reading."""
        return 1.0 if self.difference is None else self.difference.ratio

    @property
    def length(self) -> float:
        """Accepted tokens of a draft on average."""
        return 0.0 if self.acceptance is None else self.acceptance.length

    @property
    def is_better(self) -> bool:
        """Whether chance does not explain how much better than the dialect's it is."""
        d = self.difference
        if d is None or (d.first <= 0 and d.accepted_ratio < LATER_RATIO):
            return False
        return d.ratio >= RATIO and d.errors >= ERRORS and d.accepted_errors >= ACCEPTED_ERRORS


@attrs.frozen
class Diagnosis:
    """The readings of a file, and what they show."""

    results: list[ReadingResult]
    """The dialect's own reading first."""
    best: ReadingResult
    """The reading to use."""
    cause: str | None
    """A usual cause, or None: its file is as it should be, or no usual cause explains it."""
    whole: Acceptance
    """Acceptance of long drafts in the best reading."""


def diagnose_head(target: Target, file: Any, prompts: Sequence[Any], longest: int, tokens: int) -> Diagnosis:
    """Try every reading that a file allows. Raises SpecError if the dialect's own cannot be tried."""
    short = Texts(prompts, TOKENS, min(DRAFT, longest))
    references = write_references(target, short)
    own = score_reading(target, file, short, references)
    trial = Trial(target, file, short, references, own)
    base = ReadingResult(None, acceptance_of(own, short.longest))
    results = [base, *(trial.compare(reading) for reading in file.readings(target))]
    best = _best(base, results)
    if best is base or "ids" in best.reading.changes:
        layers = trial.search_layers(best)
        results += layers
        best = _best(best, layers, 1.0 if best is base else FAR_BETTER)
    read = file if best is base else file.read_as(best.reading.changes)
    whole = measure_acceptance(target, read, Texts(prompts, tokens, longest))
    cause = None if best is base else best.reading.cause
    if best is base and is_mapped_wrongly(own, references):
        cause = MAP
    return Diagnosis(results, best, cause, whole)


def _best(base: ReadingResult, others: Sequence[ReadingResult], factor: float = 1.0) -> ReadingResult:
    """The best of readings that are surely better than the dialect's, if it accepts ``factor`` times as much as
    ``base``."""
    best = max((one for one in others if one.is_better), key=_rank, default=base)
    return best if best.length >= factor * base.length else base


def _rank(result: ReadingResult) -> tuple[float, float]:
    """How many more tokens, then how much more chance, than the dialect's reading has."""
    return (0.0, 1.0) if result.difference is None else (result.difference.accepted, result.difference.ratio)


@attrs.define(eq=False)
class Trial:
    """Readings of one head, compared on the same texts. own: scores of the dialect's reading."""

    target: Target
    file: Any
    texts: Texts
    references: Sequence[Sequence[int]]
    own: Mapping[Place, Score]

    def compare(self, reading: Any) -> ReadingResult:
        """Try one reading. One that gives no head, such as two tokens for one row, is noted with its error."""
        try:
            read = self.file.read_as(reading.changes)
            scores = score_reading(self.target, read, self.texts, self.references)
        except SpecError as error:
            return ReadingResult(reading, error=error.reason.splitlines()[0])
        return ReadingResult(reading, acceptance_of(scores, self.texts.longest), difference_of(scores, self.own))

    def search_layers(self, first: ReadingResult) -> list[ReadingResult]:
        """Try other hidden states, one after the other, and go on from the best while that improves. first: where to
        begin."""
        ends_at = process_time() + LAYER_SECONDS
        prompts = self.texts.prompts[:LAYER_TEXTS]
        quick = attrs.evolve(self.texts, prompts=prompts, tokens=LAYER_TOKENS, longest=1)
        current = self.file if first.reading is None else self.file.read_as(first.reading.changes)
        reached, promising = self._chance(current, quick), []
        while process_time() < ends_at:
            level = []
            for reading in current.readings(self.target, others=True):
                if process_time() >= ends_at:
                    break
                level.append((self._chance(self.file.read_as(reading.changes), quick), reading))
            chance, reading = max(level, key=lambda one: one[0], default=(0.0, None))
            if reading is None or chance <= reached * 1.02:
                break
            promising.append(reading)
            reached, current = chance, self.file.read_as(reading.changes)
        return [self.compare(reading) for reading in promising[-PROMISING:]]

    def _chance(self, file: Any, texts: Texts) -> float:
        scores = score_reading(self.target, file, texts, self.references)
        return sum(score.chance for score in scores.values())


def is_mapped_wrongly(own: Mapping[Place, Score], references: Sequence[Sequence[int]]) -> bool:
    """Whether drafted tokens name the target's tokens one by one, under other numbers.

    Each first token is guessed from what followed the other drafts of the same token.
    """
    pairs = [(score.first, references[text][at]) for (text, at), score in own.items()]
    counts: dict[int, Counter[int]] = {}
    for drafted, right in pairs:
        counts.setdefault(drafted, Counter())[right] += 1
    guessed, rows = 0, set()
    for drafted, right in pairs:
        others = counts[drafted] - Counter({right: 1})
        if others and others.most_common(1)[0][0] == right and drafted != right:
            guessed += 1
            rows.add(drafted)
    accepted = sum(score.accepted > 0 for score in own.values())
    return len(rows) >= DISTINCT and guessed - accepted >= MAPPED * len(pairs)
