"""The first difference of two texts, and the gap between the target's best scores there: numerics, or a bug."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from spec_cli.prompt import tokens_of
from spec_cli.prompts import Prompt
from spec_cli.score import scored

from spec_compare.measure import Lap, Record, Terms
from spec_compare.summary import truth
from spec_core import Target
from spec_core.toolkit import adjust, gap


@attrs.frozen
class Difference:
    """position: output position of the first difference; gap: between the two best scores of the target there.

    plain, other: the tokens; None at the end of a text.
    """

    contender: str
    prompt: str
    position: int
    gap: float
    plain: int | None
    other: int | None


def differences(
    laps: Iterable[Lap], labels: Iterable[str], prompts: list[Prompt], target: Target, terms: Terms
) -> list[Difference]:
    """The first difference of every prompt whose text is not plain decoding's, with scores from a new forward.

    labels: contenders whose text may differ.
    """
    laps, texts = list(laps), {p.id: p.given for p in prompts}
    plain = truth(laps)
    found: dict[tuple[str, str], Difference] = {}
    for record in (r for lap in laps if lap.contender not in set(labels) for r in lap.records):
        key = (record.contender, record.prompt)
        if key not in found and record.tokens != plain[record.prompt]:
            found[key] = difference(record, plain[record.prompt], texts[record.prompt], target, terms)
    return list(found.values())


def difference(record: Record, plain: list[int], given: Any, target: Target, terms: Terms) -> Difference:
    at = first_difference(plain, record.tokens)
    prompt = tokens_of(given, target)
    history = prompt + plain[:at]
    row = adjust(scored(target, history, hidden=False)["logits"][-1], terms.sampling, history, len(prompt))
    apart = gap(row, terms.sampling, record.seed, at)
    return Difference(record.contender, record.prompt, at, apart, _at(plain, at), _at(record.tokens, at))


def first_difference(a: list[int], b: list[int]) -> int:
    """The first position at which they differ; the end of the shorter one if it is a prefix of the other."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _at(tokens: list[int], i: int) -> int | None:
    return tokens[i] if i < len(tokens) else None
