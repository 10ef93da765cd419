"""How much an audit asks for, and an upper bound of it that is printed before the audit begins."""

from __future__ import annotations

import attrs


@attrs.frozen
class Budget:
    """prompts: of greedy texts. tokens: of a greedy text. draws: of each arm for a prompt and a temperature.
    few: prompts of a check of parameters, state or accounts. rounds: of the measurement of speed.
    """

    prompts: int
    tokens: int
    draws: int
    few: int
    rounds: int
    cells: int = 4


BUDGETS = {
    "small": Budget(prompts=8, tokens=32, draws=600, few=4, rounds=3),
    "medium": Budget(prompts=24, tokens=48, draws=6000, few=8, rounds=4),
    "large": Budget(prompts=48, tokens=96, draws=25_000, few=16, rounds=8),
}
DRAW_TOKENS = 8
"""Tokens of a draw: the first comes from the prompt's own forward, the others may come from drafts."""


@attrs.frozen
class Cost:
    """Max numbers of requests and of generated tokens."""

    requests: int
    tokens: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.requests + other.requests, self.tokens + other.tokens)
