"""The bound over methods: tokens per step if the best of the compared methods had drafted at each position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

import attrs

from spec_compare.figures.summary import text_of, truth
from spec_compare.records.record import Lap, Record


@attrs.frozen
class RoutingBound:
    """Of the drafting contenders of one plain decoding, on the texts that are equal to its own.

    tokens_per_step: from each position the step that ends last is taken, and a step counts from any of its positions,
    as it would have been reached from there too. own: {contender: tokens per step on the same texts}.
    """

    baseline: str
    texts: int
    tokens_per_step: float
    own: dict[str, float]

    @property
    def text(self) -> str:
        """The bound in words."""
        own = ", ".join(f"{name} {value:.2f}" for name, value in self.own.items())
        return (
            f"the best of {len(self.own)} methods at each position: {self.tokens_per_step:.2f} tokens per step "
            f"({own}), on {self.texts} equal texts, where a step counts from any of its positions"
        )


def routing_bounds(laps: list[Lap], baselines: Mapping[str, str]) -> list[RoutingBound]:
    """The bound of every plain decoding with two drafting contenders or more.

    baselines: {contender: the plain decoding it is compared with}, without contenders that know the text.
    """
    listed = (_bound(laps, plain, baselines) for plain in dict.fromkeys(baselines.values()))
    return [one for one in listed if one is not None]


def _bound(laps: list[Lap], plain: str, baselines: Mapping[str, str]) -> RoutingBound | None:
    names = [name for name, own in baselines.items() if own == plain != name]
    ends = equal_steps(laps, names)
    if len(names) < 2 or not ends:
        return None
    tokens = sum(texts[names[0]][-1] for texts in ends)
    own = {name: tokens / sum(len(texts[name]) for texts in ends) for name in names}
    return RoutingBound(plain, len(ends), tokens / sum(count_steps(texts.values()) for texts in ends), own)


def equal_steps(laps: Iterable[Lap], names: list[str]) -> list[dict[str, list[int]]]:
    """For every text on which all contenders agree with plain decoding: {contender: where each of its steps ends}.

    The first repeat counts. Texts without a step are left out.
    """
    laps = list(laps)
    plain = truth(laps)
    by_text: dict[tuple[str, int], dict[str, list[int]]] = {}
    for record in (r for lap in laps if lap.contender in names for r in lap.records):
        if record.repeat == 0 and record.tokens == plain.get(text_of(record)):
            by_text.setdefault((record.prompt, record.turn), {})[record.contender] = _ends(record)
    return [ends for ends in by_text.values() if len(ends) == len(names) and _end_together(ends.values())]


def _end_together(ends: Iterable[list[int]]) -> bool:
    """Whether every text has steps, and all have one number of tokens."""
    return len({own[-1] if own else 0 for own in ends} | {0}) == 2 and all(ends)


def _ends(record: Record) -> list[int]:
    return list(accumulate(record.steps.emitted))


def count_steps(ends: Iterable[list[int]]) -> int:
    """The fewest steps over a text. ends: of each method, where its steps end; the last ends are equal."""
    listed = list(ends)
    at = steps = 0
    while at < listed[0][-1]:
        at, steps = max(own[bisect_right(own, at)] for own in listed), steps + 1
    return steps
