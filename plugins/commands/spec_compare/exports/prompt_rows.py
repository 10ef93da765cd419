"""The prompts of a comparison as rows of other programs' sets, so that other engines run the same ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_commands.common import as_json
from spec_commands.prompts import Prompt

from spec_compare.exports.answers import is_number
from spec_compare.exports.tables import write_file
from spec_compare.figures.outcome import Outcome
from spec_compare.inputs.conversation import Conversation
from spec_core.errors import UsageError

Row = Callable[[Prompt, list[str]], dict[str, Any]]


def speed_bench(outcome: Outcome, path: Path) -> list[Path]:
    """Rows of SPEED-Bench and Spec-Bench: ``question_id``, ``category`` and ``turns``."""
    return _write(
        outcome, path, lambda p, turns: {"question_id": number_or_text(p.id), "category": p.family, "turns": turns}
    )


def spec_al(outcome: Outcome, path: Path) -> list[Path]:
    """Rows of AIPerf's ``spec_al_mtbench``: ``prompt_id``, ``category``, and the turns as ``prompt``."""
    return _write(
        outcome, path, lambda p, turns: {"prompt_id": number_or_text(p.id), "category": p.family, "prompt": turns}
    )


def number_or_text(prompt: str) -> int | str:
    """The id of a row: a number where it is one."""
    return int(prompt) if is_number(prompt) else prompt


def _write(outcome: Outcome, path: Path, row: Row) -> list[Path]:
    if not outcome.prompts:
        raise UsageError("the prompts were not stored with these results", hint="compare again without --no-prompts")
    lines = (as_json(row(prompt, turns_of(prompt))) + "\n" for prompt in outcome.prompts)
    return [write_file(path, "".join(lines).encode())]


def turns_of(prompt: Prompt) -> list[str]:
    """The user's turns. Raises UsageError for a prompt that is not made of them alone."""
    if isinstance(prompt, Conversation):
        return list(prompt.turns)
    if isinstance(prompt.given, str):
        return [prompt.given]
    messages = [m for m in prompt.given if isinstance(m, dict)]
    if len(messages) == 1 and messages[0].get("role") == "user" and isinstance(messages[0].get("content"), str):
        return [messages[0]["content"]]
    form = "token ids" if not messages else "messages that are not one text of the user"
    raise UsageError(
        f"prompt {prompt.id!r} is {form}, which no row of these sets can hold", hint="leave it out of the comparison"
    )
