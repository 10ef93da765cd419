"""The first difference of two texts, and the gap between the target's best scores there: numerics, or a bug."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import attrs
from spec_commands.evaluation import evaluate_tokens
from spec_commands.prompt import tokens_of
from spec_commands.prompts import Prompt

from spec_compare.conversation import next_prompt
from spec_compare.measure import Baseline, RequestSettings
from spec_compare.records.record import Lap, Record
from spec_compare.summary import text_of, truth
from spec_core import Target
from spec_core.toolkit import adjust, gap


@attrs.frozen
class Difference:
    """position: output position of the first difference; gap: between the two best scores of the target there, None if
    it was not computed.

    plain, other: the tokens; None at the end of a text. best, scores: the target's two best tokens and their scores,
    before noise. rows: of the step in which the contender chose its token. flips: whether plain decoding, in steps with
    the contender's number of rows, differs there or before too. Empty and None if they were not computed.
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


def differences(
    laps: Iterable[Lap], labels: Iterable[str], setups: Mapping[str, Baseline], prompts: list[Prompt]
) -> list[Difference]:
    """The first difference of every text that is not plain decoding's, with scores from a new forward.

    labels: contenders whose text may differ. setups: by baseline. Conversations: the first turn that differs.
    """
    laps, asked_for = list(laps), {p.id: p for p in prompts}
    plain, texts = truth(laps), answers(laps)
    first: dict[tuple[str, str], Difference] = {}
    for record in (r for lap in laps if lap.contender not in set(labels) for r in lap.records):
        key = (record.contender, record.prompt)
        if key not in first and record.tokens != plain[text_of(record)]:
            setup = setups[record.baseline]
            prompt = next_prompt(
                asked_for[record.prompt], texts[record.baseline, record.prompt][: record.turn], setup.target
            )
            first[key] = difference(record, plain[text_of(record)], prompt, setup.target, setup.terms)
    return list(first.values())


def recorded_differences(laps: list[Lap], labels: Container[str]) -> list[Difference]:
    """Differences from records alone, without scores."""
    plain = truth(laps)
    first: dict[tuple[str, str], Difference] = {}
    for record in (r for lap in laps if lap.contender not in labels for r in lap.records):
        texts, key = plain.get(text_of(record), []), (record.contender, record.prompt)
        if key not in first and record.tokens != texts:
            at = first_difference(texts, record.tokens)
            first[key] = Difference(*key, at, None, _at(texts, at), _at(record.tokens, at))
    return list(first.values())


def answers(laps: list[Lap]) -> dict[tuple[str, str], list[str]]:
    """The texts of plain decoding's turns, by baseline and prompt."""
    texts: dict[tuple[str, str], list[str]] = {}
    for record in (r for lap in laps for r in lap.records if r.contender == r.baseline and r.repeat == 0):
        texts.setdefault((record.baseline, record.prompt), []).append(record.text)
    return texts


def difference(record: Record, plain: list[int], given: Any, target: Target, terms: RequestSettings) -> Difference:
    at = first_difference(plain, record.tokens)
    prompt = tokens_of(given, target)
    if min(prompt) < 0:  # rows of pictures have no token to evaluate again
        return Difference(record.contender, record.prompt, at, None, _at(plain, at), _at(record.tokens, at))
    history = prompt + plain[:at]
    row = adjust(evaluate_tokens(target, history, hidden=False)["logits"][-1], terms.sampling, history, len(prompt))
    apart = gap(row, terms.sampling, record.seed, at)
    scores, best = (part.tolist() for part in row.topk(2))
    return Difference(record.contender, record.prompt, at, apart, _at(plain, at), _at(record.tokens, at), best, scores)


def first_difference(a: list[int], b: list[int]) -> int:
    """The first position at which they differ; the end of the shorter one if it is a prefix of the other."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _at(tokens: list[int], i: int) -> int | None:
    return tokens[i] if i < len(tokens) else None
