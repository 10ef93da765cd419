"""How well a head's rows predict the target's text at every position: the same positions in every reading.

Shares of accepted tokens need thousands of drafts to tell two readings apart; the chances that a head gives to the
target's own tokens, compared position by position, need some hundred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from torch import Tensor

from spec_core import AcceptStep, Compat, Target, Verdict, hookimpl
from spec_core.toolkit import choosers
from spec_doctor.acceptance import Acceptance, Texts, continue_texts, make_method

Place = tuple[int, int]
"""The number of a text, and a position in its continuation."""


@attrs.define(eq=False)
class KeepNone:
    """A rule that accepts no draft, so that a text is drafted at every position. The text stays the target's own."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat()

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        for seq, choice in choosers(step):
            if step.part(seq).draft is not None:
                step.decide(seq, Verdict((), choice(0)))


@attrs.frozen
class Score:
    """chance: that a head gives to the target's tokens, summed over positions whose predecessors it drafted rightly.
    tested, accepted: drafted tokens, see ``Acceptance``. first: the first drafted token."""

    chance: float
    tested: int
    accepted: int
    first: int


@attrs.frozen
class Difference:
    """Of two readings over the same places. ratio: of chances. errors: the mean difference of chances in standard
    errors. accepted: the mean difference of accepted tokens, and accepted_errors in standard errors. accepted_ratio: of
    accepted tokens. first: the mean difference of accepted first tokens."""

    ratio: float
    errors: float
    accepted: float
    accepted_errors: float
    accepted_ratio: float
    first: float


def write_references(target: Target, texts: Texts) -> list[list[int]]:
    """The target's own continuations, long enough for the drafts at the last position."""
    more = attrs.evolve(texts, tokens=texts.tokens + texts.longest)
    return [list(seq.tokens[seq.prompt_len :]) for seq in continue_texts(target, [], more)]


def score_reading(target: Target, file: Any, texts: Texts, references: Sequence[Sequence[int]]) -> dict[Place, Score]:
    """Scores of a head at every position of the references."""
    name, method = make_method(file, texts.longest)
    scores: dict[Place, Score] = {}
    seen: list[tuple[int, Tensor]] = []
    order: dict[Any, int] = {}
    method.watch = lambda token, row: seen.append((token, row))

    def look(step: Any) -> None:
        for part in step.parts:
            order.setdefault(part.seq, len(order))
        drafted = [part for part in step.parts if part.draft is not None]
        for part, rows in zip(drafted, _rows_of([part.draft.ids for part in drafted], seen), strict=True):
            at = part.seq.output_position - len(part.emitted)
            truth = references[order[part.seq]][at:]
            if rows and list(part.emitted) == list(truth[: len(part.emitted)]):
                scores[order[part.seq], at] = _score(part.draft.ids, rows, truth)
        seen.clear()

    continue_texts(target, [(name, method)], texts, look, KeepNone())
    return scores


def _rows_of(drafts: Sequence[Sequence[int]], seen: list[tuple[int, Tensor]]) -> list[list[Tensor]]:
    """Rows of each draft: they are seen in the order of positions, then of drafts. None of drafts that do not match."""
    rows: list[list[Tensor]] = [[] for _ in drafts]
    following = iter(seen)
    for depth in range(max(map(len, drafts), default=0)):
        for draft, own in zip(drafts, rows, strict=True):
            if depth < len(draft):
                token, row = next(following, (-1, None))
                own += [row] if token == draft[depth] and row is not None else []
    return [own if len(own) == len(draft) else [] for own, draft in zip(rows, drafts, strict=True)]


def _score(draft: Sequence[int], rows: Sequence[Tensor], truth: Sequence[int]) -> Score:
    chance, accepted = 0.0, 0
    for token, row, right in zip(draft, rows, truth, strict=False):
        chance += float((row[right].double() - row.double().logsumexp(-1)).exp())
        if token != right:
            return Score(chance, accepted + 1, accepted, draft[0])
        accepted += 1
    return Score(chance, accepted, accepted, draft[0])


def acceptance_of(scores: Mapping[Place, Score], longest: int) -> Acceptance:
    """Acceptance by position of drafts that begin everywhere."""
    tested = tuple(sum(score.tested > i for score in scores.values()) for i in range(longest))
    accepted = tuple(sum(score.accepted > i for score in scores.values()) for i in range(longest))
    return Acceptance(tested, accepted, len(scores))


def difference_of(one: Mapping[Place, Score], other: Mapping[Place, Score]) -> Difference:
    """One reading against another, over the places of both."""
    places = one.keys() & other.keys()
    if len(places) < 2:
        return Difference(1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    chances = [one[place].chance - other[place].chance for place in places]
    kept = [float(one[place].accepted - other[place].accepted) for place in places]
    before = sum(other[place].chance for place in places)
    ratio = sum(one[place].chance for place in places) / max(before, 1e-9)
    (_, errors), (accepted, accepted_errors) = _mean(chances), _mean(kept)
    tokens = sum(one[place].accepted for place in places) / max(sum(other[place].accepted for place in places), 1e-9)
    first = sum((one[place].accepted > 0) - (other[place].accepted > 0) for place in places) / len(places)
    return Difference(ratio, errors, accepted, accepted_errors, tokens, first)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the mean in standard errors."""
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    return mean, mean / max(spread, 1e-9)
