"""Greedy texts with and without drafts: where they differ first, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Literal

import attrs
from spec_commands.servers.answers import Answer

from spec_audit.asks import PLAIN, Ask
from spec_audit.audit import PARITY_LEVEL, Audit
from spec_audit.promise import Failed, Report, Skipped, ask_drafts, ask_plain
from spec_audit.statistics import worse_than
from spec_audit.trie import common_beginning
from spec_audit.verdict import share

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


def explain_difference(audit: Audit, ask: Ask, plain: str, other: str, gaps: bool = True) -> Difference:
    """The first difference of a text from the plain one, with the cause if log-probabilities show it.

    gaps: whether to ask for them.
    """
    at = len(common_beginning([plain, other]))
    gap = gap_at(audit, ask, plain, at) if gaps else None
    cause = UNKNOWN if gap is None else NUMERICS if gap <= audit.facts.rounding else FAULT
    return Difference(ask, at, plain, other, gap, cause)


def gap_at(audit: Audit, ask: Ask, plain: str, at: int) -> float | None:
    """Gap of the two best log-probabilities of the token with this character of the plain text."""
    answer = audit.session.ask(attrs.evolve(ask, side=PLAIN, fields={**ask.fields, "logprobs": 2}))
    end = 0
    for token in answer.tokens or () if answer.text == plain else ():
        end += len(token.text)
        if end > at:
            gap = token.top[0] - token.top[1] if len(token.top) > 1 else None
            return gap if gap is not None and isfinite(gap) else None
    return None


def judge_texts(
    audit: Audit,
    asks: Sequence[Ask],
    plain: Sequence[Answer],
    drafts: Sequence[Answer],
    same_scores: bool = True,
    by_number: bool = True,
) -> Report:
    """Whether greedy texts with drafts equal plain ones, within the floor. Raises Failed or Skipped if not.

    same_scores: False if the request changes scores, so that log-probabilities do not show how close a choice was.
    by_number: whether more differences of unknown cause than in the floor are a fault.
    """
    number, gaps = len(asks), same_scores and audit.facts.logprobs
    power = _power(audit, number, gaps)
    pairs = [(a, p.text, d.text) for a, p, d in zip(asks, plain, drafts, strict=True) if p.text != d.text]
    equal = f"{share(number - len(pairs), number)} texts are equal"
    differences = [explain_difference(audit, *pair, gaps) for pair in pairs]
    if faults := [difference for difference in differences if difference.cause == FAULT]:
        worst = max(faults, key=lambda difference: difference.gap or 0)
        raise Failed(f"{equal}; {worst.words}", worst.ask, power)
    if unknown := [difference for difference in differences if difference.cause == UNKNOWN]:
        if by_number and worse_than(len(unknown), number, audit.facts.greedy) < PARITY_LEVEL:
            raise Failed(f"{equal}; {unknown[0].words}", unknown[0].ask, power)
        raise Skipped(f"{equal}; differs, cause unknown: {unknown[0].words}")
    gap = max((difference.gap or 0 for difference in differences), default=0)
    return (f"{equal}; numerics: the others differ at gaps of at most {gap:.3g}" if differences else equal), power


def _power(audit: Audit, number: int, gaps: bool) -> str:
    """What would have been found. gaps: whether log-probabilities show how close a choice was."""
    if gaps:
        return f"finds one text that differs where the best two are more than {audit.facts.rounding:.2g} apart"
    tries = (k for k in range(1, number + 1) if worse_than(k, number, audit.facts.greedy) < PARITY_LEVEL)
    least = next(tries, None)
    return f"{number} texts are too few to judge" if least is None else f"finds {least} of {number} different texts"


def compare_greedy(audit: Audit, asks: Sequence[Ask], at_once: int | None = None, same_scores: bool = True) -> Report:
    """Send requests to both arms, plain first, and judge their texts."""
    plain = ask_plain(audit, asks, at_once)
    return judge_texts(audit, asks, plain, ask_drafts(audit, asks, at_once), same_scores)
