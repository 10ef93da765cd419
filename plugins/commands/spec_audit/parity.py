"""Greedy texts with and without drafts: where they differ first, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from spec_audit.asks import DRAFTS, PLAIN, Answer, Ask
from spec_audit.audit import PARITY_LEVEL, Audit
from spec_audit.statistics import worse_than
from spec_audit.trie import common_beginning
from spec_audit.verdict import FAILS, HOLDS, Verdict, share, skip

Cause = Literal["numerics", "fault", "unknown"]
NUMERICS: Cause = "numerics"
FAULT: Cause = "fault"
UNKNOWN: Cause = "unknown"
SHOWN = 24
"""Characters of a text around a difference that are shown."""


@attrs.frozen
class Difference:
    """The first difference of a text. at: its character. gap: between the two best log-probabilities there."""

    ask: Ask
    at: int
    plain: str
    drafts: str
    gap: float | None
    cause: Cause

    @property
    def words(self) -> str:
        """The difference in words."""
        gap = "" if self.gap is None else f", where the two best log-probabilities are {self.gap:.3g} apart"
        return f"at character {self.at}, {_around(self.plain, self.at)} became {_around(self.drafts, self.at)}{gap}"


def _around(text: str, at: int) -> str:
    return repr(text[max(0, at - SHOWN // 2) : at + SHOWN // 2])


def explain(audit: Audit, ask: Ask, plain: str, other: str) -> Difference:
    """The first difference of a text from the plain one, with the cause if log-probabilities show it."""
    at = len(common_beginning([plain, other]))
    gap = gap_at(audit, ask, plain, at) if audit.facts.logprobs else None
    cause = UNKNOWN if gap is None else NUMERICS if gap <= audit.facts.rounding else FAULT
    return Difference(ask, at, plain, other, gap, cause)


def gap_at(audit: Audit, ask: Ask, plain: str, at: int) -> float | None:
    """Gap of the two best log-probabilities of the token with this character of the plain text."""
    answer = audit.session.ask(attrs.evolve(ask, side=PLAIN, fields={**ask.fields, "logprobs": 2}))
    end = 0
    for token in answer.tokens or () if answer.text == plain else ():
        end += len(token.text)
        if end > at:
            return token.top[0] - token.top[1] if len(token.top) > 1 else None
    return None


def refusal(promise: str, plain: Sequence[Answer], drafts: Sequence[Answer], audit: Audit, ask: Ask) -> Verdict | None:
    """The verdict if an arm refuses: a server that fails with drafts alone has a fault, other refusals are none."""
    if first := next((answer for answer in plain if answer.refused), None):
        return skip(promise, f"refused ({first.status}): {first.error}")
    if first := next((answer for answer in drafts if answer.refused), None):
        if first.status >= 500 and first.status != 501:
            return Verdict(
                promise, FAILS, f"error {first.status} with drafts only: {first.error}", "", audit.curls(ask)
            )
        return skip(promise, f"refused with drafts ({first.status}): {first.error}")
    return None


def judge_texts(
    audit: Audit,
    promise: str,
    asks: Sequence[Ask],
    plain: Sequence[Answer],
    drafts: Sequence[Answer],
    same_scores: bool = True,
    by_number: bool = True,
) -> Verdict:
    """Whether greedy texts with drafts equal plain ones, within the floor.

    same_scores: False if the request changes scores, so that log-probabilities do not show how close a choice was.
    by_number: whether more differences of unknown cause than in the floor are a fault.
    """
    if verdict := refusal(promise, plain, drafts, audit, asks[0]):
        return verdict
    pairs = [(a, p.text, d.text) for a, p, d in zip(asks, plain, drafts, strict=True) if p.text != d.text]
    power = _power(audit, len(asks), same_scores and audit.facts.logprobs)
    if not pairs:
        return Verdict(promise, HOLDS, f"{share(len(asks), asks)} texts are equal", power)
    differences = [_difference(audit, *pair, same_scores) for pair in pairs]
    return _judge(audit, promise, differences, len(asks), power, by_number)


def _difference(audit: Audit, ask: Ask, plain: str, drafts: str, same_scores: bool) -> Difference:
    if same_scores:
        return explain(audit, ask, plain, drafts)
    return Difference(ask, len(common_beginning([plain, drafts])), plain, drafts, None, UNKNOWN)


def _judge(
    audit: Audit, promise: str, differences: list[Difference], number: int, power: str, by_number: bool
) -> Verdict:
    by_cause: dict[Cause, list[Difference]] = {NUMERICS: [], FAULT: [], UNKNOWN: []}
    for difference in differences:
        by_cause[difference.cause].append(difference)
    equal = f"{share(number - len(differences), number)} texts are equal"
    if faults := by_cause[FAULT]:
        worst = max(faults, key=lambda difference: difference.gap or 0)
        return Verdict(promise, FAILS, f"{equal}; {worst.words}", power, audit.curls(worst.ask))
    if by_cause[UNKNOWN]:
        first = by_cause[UNKNOWN][0]
        if by_number and worse_than(len(by_cause[UNKNOWN]), number, audit.facts.greedy) < PARITY_LEVEL:
            return Verdict(promise, FAILS, f"{equal}; {first.words}", power, audit.curls(first.ask))
        return skip(promise, f"{equal}; differs, cause unknown: {first.words}")
    gap = max(difference.gap or 0 for difference in differences)
    return Verdict(promise, HOLDS, f"{equal}; numerics: the others differ at gaps of at most {gap:.3g}", power)


def _power(audit: Audit, number: int, gaps: bool) -> str:
    """What would have been found. gaps: whether log-probabilities show how close a choice was."""
    if gaps:
        return f"finds one text that differs where the best two are more than {audit.facts.rounding:.2g} apart"
    least = needed(number, audit.facts.greedy)
    return f"finds {least} of {number} different texts" if least <= number else f"{number} texts are too few to judge"


def needed(number: int, floor: tuple[int, int]) -> int:
    """The number of differing texts that is found without log-probabilities; more than ``number`` if none is."""
    tries = (k for k in range(1, number + 1) if worse_than(k, number, floor) < PARITY_LEVEL)
    return next(tries, number + 1)


def compare_greedy(
    audit: Audit, promise: str, asks: Sequence[Ask], at_once: int | None = None, same_scores: bool = True
) -> Verdict:
    """Send requests to both arms, plain first, and judge their texts."""
    plain = audit.session.ask_all([ask.on(PLAIN) for ask in asks], at_once)
    if verdict := refusal(promise, plain, (), audit, asks[0]):
        return verdict
    drafts = audit.session.ask_all([ask.on(DRAFTS) for ask in asks], at_once)
    return judge_texts(audit, promise, asks, plain, drafts, same_scores)
