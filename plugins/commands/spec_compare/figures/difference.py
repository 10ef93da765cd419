"""The first difference of two texts, as recorded."""

from __future__ import annotations

from collections.abc import Container

import attrs

from spec_compare.figures.summary import text_of, truth
from spec_compare.records.record import Lap


@attrs.frozen
class Difference:
    """position: output position of the first difference; gap: between the two best scores of the target there, None if
    it was not computed.

    plain, other: the tokens; None at the end of a text. best, scores: the target's two best tokens and their scores,
    before noise. rows: of the step in which the contender chose its token. flips: whether plain decoding, in steps with
    the contender's number of rows, differs there or before too. Empty and None if they were not computed.
    unit: "character" for texts of servers: position, plain and other are then of characters.
    """

    contender: str
    prompt: str
    position: int
    gap: float | None
    plain: int | None
    other: int | None
    best: list[int] = attrs.field(factory=list)
    scores: list[float] = attrs.field(factory=list)
    rows: int | None = None
    flips: bool | None = None
    unit: str = "token"


def recorded_differences(laps: list[Lap], labels: Container[str]) -> list[Difference]:
    """Differences from records alone, without scores."""
    plain = truth(laps)
    first: dict[tuple[str, str], Difference] = {}
    for record in (r for lap in laps if lap.contender not in labels for r in lap.records):
        texts, key = plain.get(text_of(record), []), (record.contender, record.prompt)
        if key not in first and record.content != texts:
            at = first_difference(texts, record.content)
            unit = "token" if record.served is None else "character"
            first[key] = Difference(*key, at, None, token_at(texts, at), token_at(record.content, at), unit=unit)
    return list(first.values())


def answers(laps: list[Lap]) -> dict[tuple[str, str], list[str]]:
    """The texts of plain decoding's turns, by baseline and prompt."""
    texts: dict[tuple[str, str], list[str]] = {}
    for record in (r for lap in laps for r in lap.records if r.contender == r.baseline and r.repeat == 0):
        texts.setdefault((record.baseline, record.prompt), []).append(record.text)
    return texts


def first_difference(a: list[int], b: list[int]) -> int:
    """The first position at which they differ; the end of the shorter one if it is a prefix of the other."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def token_at(tokens: list[int], i: int) -> int | None:
    return tokens[i] if i < len(tokens) else None
