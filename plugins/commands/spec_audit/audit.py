"""What all checks share: the session, the prompts, the budget, and what is known of the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from random import Random

import attrs
from spec_commands.prompts import Prompt, read_prompt_file

from spec_audit.asks import DRAFTS, PLAIN, Ask
from spec_audit.budget import Budget
from spec_audit.session import Session

GREEDY = {"temperature": 0}
ROUNDING = 0.25
"""Difference of log-probabilities that rounding explains on every server: bfloat16, weights of 4 bits."""
PARITY_LEVEL = 0.0005
"""Level of the test whether texts differ more often than in the floor: some 20 of them alarm in 1 of 100 audits."""


@attrs.define(eq=False)
class Facts:
    """What can be compared.

    n: texts of one request. repeats: whether an equal seed gives an equal text; varies: whether another one gives
    another text, both without drafts. floor: greedy texts, and how many differ between plain alone and plain in a
    batch. greedy: the same between plain and drafts. rounding: difference of log-probabilities that is numerics.
    """

    n: int = 1
    seed: bool = False
    repeats: bool = False
    varies: bool = False
    logprobs: bool = False
    draft_logprobs: bool = False
    floor: tuple[int, int] = (0, 0)
    greedy: tuple[int, int] = (0, 0)
    rounding: float = ROUNDING


@attrs.define(eq=False)
class Audit:
    """An audit that runs. texts: plain greedy texts by prompt. stopped: the server did, by a fault."""

    session: Session
    budget: Budget
    prompts: Sequence[Prompt]
    seed: int
    key_name: str | None = None
    facts: Facts = attrs.field(factory=Facts)
    texts: dict[str, str] = attrs.field(factory=dict)
    on_check: Callable[[str], None] = lambda title: None
    stopped: bool = False

    def greedy_asks(self, prompts: Sequence[Prompt], **fields: object) -> list[Ask]:
        """Greedy requests without drafts."""
        return [Ask(PLAIN, str(p.given), self.budget.tokens, {**GREEDY, **fields}) for p in prompts]

    def few(self, label: str) -> list[Prompt]:
        """Prompts of a check, the same for the same label, of all categories in turn."""
        prompts = list(self.prompts)
        Random(f"{self.seed}/{label}").shuffle(prompts)
        return take_in_turns(prompts, self.budget.few)

    def curls(self, ask: Ask) -> tuple[str, ...]:
        """A request with drafts and without, as lines of curl."""
        return tuple(self.session.curl_line(ask.on(side), self.key_name) for side in (DRAFTS, PLAIN))

    def seeds(self, label: str) -> Random:
        """Numbers that differ between checks and arms."""
        return Random(f"{self.seed}/{label}")


def read_prompts(path: Path | None) -> list[Prompt]:
    """The prompts of a file, or of the package."""
    return read_prompt_file(path or Path(__file__).parent / "prompts.jsonl", forms=("prompt",))


def take_in_turns(prompts: Sequence[Prompt], number: int) -> list[Prompt]:
    """This number of prompts, one of each category in turn."""
    families: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        families.setdefault(prompt.family, []).append(prompt)
    return [prompt for turn in zip_longest(*families.values()) for prompt in turn if prompt is not None][:number]
