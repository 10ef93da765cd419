"""Speed with drafts and without, in turns: the median ratio of each category and its interval, at 1 and 4 at once."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from spec_commands.servers.answers import Answer

from spec_audit.asks import DRAFTS, PLAIN, Ask, Side
from spec_audit.audit import Audit
from spec_audit.budget import Budget, Cost
from spec_audit.statistics import interval
from spec_audit.verdict import Speed

TITLE = "Speed"
AT_ONCE = (1, 4)
FAMILIES = 6
"""Max categories that are measured."""
PROMPTS = 4
"""Prompts of a category: each round has all of them."""


def cost(budget: Budget) -> Cost:
    """The most that this measurement asks for."""
    number = 2 * len(AT_ONCE) * FAMILIES * PROMPTS * (budget.rounds + 1)
    return Cost(number, number * budget.tokens)


def measure_speeds(audit: Audit) -> tuple[Speed, ...]:
    """Ratios of seconds per token, the slowest category first. The first round of each is not counted."""
    families: dict[str, list[str]] = {}
    for prompt in audit.prompts:
        families.setdefault(prompt.family, []).append(str(prompt.given))
    speeds = [
        speed
        for at_once in AT_ONCE
        if at_once <= audit.session.concurrency
        for family, prompts in list(families.items())[:FAMILIES]
        if (speed := _measure(audit, family, prompts[:PROMPTS], at_once)) is not None
    ]
    return tuple(sorted(speeds, key=lambda speed: speed.ratio))


def _measure(audit: Audit, family: str, prompts: Sequence[str], at_once: int) -> Speed | None:
    ratios: list[float] = []
    for number in range(audit.budget.rounds + 1):
        seconds: dict[Side, float] = {}
        for side in (PLAIN, DRAFTS) if number % 2 else (DRAFTS, PLAIN):
            asks = [Ask(side, prompt, audit.budget.tokens, {"temperature": 0}) for prompt in prompts]
            answers = audit.session.ask_all(asks, at_once)
            if any(answer.refused for answer in answers):
                return None
            seconds[side] = _seconds_per_token(answers)
        if number and seconds[DRAFTS] > 0:
            ratios.append(seconds[PLAIN] / seconds[DRAFTS])
    if not ratios:
        return None
    low, high = interval(ratios, audit.seed)
    return Speed(family, at_once, median(ratios), low, high, len(ratios))


def _seconds_per_token(answers: Sequence[Answer]) -> float:
    """Seconds per token, from the seconds of each request: an audit that continues reads them in its record."""
    tokens = sum(answer.completion_tokens or len(answer.text) for answer in answers)
    return sum(answer.seconds for answer in answers) / max(1, tokens)
