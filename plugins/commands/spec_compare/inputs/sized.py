"""Prompts of several lengths: each is extended or cut to a number of tokens, as ``--lengths`` says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
from spec_commands.common import numbers
from spec_commands.prompts import Prompt, json_lines

from spec_compare.inputs.conversation import Conversation
from spec_core.errors import UsageError

KEY = "extended_to"
"""Name of the length in a line of stored prompts."""
LONGEST = 1 << 24
"""Max tokens of a length."""
EXTENSION = (
    "to reach a length, texts of the family's other prompts stand before a prompt, repeated as often as needed; "
    "a longer prompt loses its beginning; the end with the question stays"
)
"""How prompts get their length."""


@attrs.frozen
class SizedPrompt(Prompt):
    """A prompt that becomes ``length`` tokens long. given: before that."""

    length: int = 0


def read_lengths(text: str | None, prompt_tokens: int | None) -> list[int]:
    """The value of ``--lengths``, rising; empty without it. Raises UsageError."""
    if text is None:
        return []
    if prompt_tokens is not None:
        raise UsageError("--lengths and --prompt-tokens were both passed", hint="pass one of them")
    lengths = sorted(set(numbers(text, "--lengths", "numbers of tokens")))
    if not lengths or not 1 <= lengths[0] <= lengths[-1] <= LONGEST:
        raise UsageError(
            f"--lengths {text[:60]!r} must be numbers of tokens from 1 to {LONGEST}", hint="write --lengths 512,2048"
        )
    return lengths


def size_prompts(prompts: Sequence[Prompt], lengths: Sequence[int]) -> list[Prompt]:
    """Every prompt in every length, the shortest first; the prompts themselves without a length.

    Raises UsageError for conversations: their later turns have no length of their own.
    """
    if not lengths:
        return [*prompts]
    for prompt in prompts:
        if isinstance(prompt, Conversation) and len(prompt.turns) > 1:
            raise UsageError(
                f"prompt {prompt.id!r} has {len(prompt.turns)} turns: --lengths needs prompts of one turn",
                hint="remove it from --prompts, or leave --lengths out",
            )
    return [SizedPrompt(f"{p.id}@{n}", p.family, p.given, n) for n in lengths for p in prompts]


def length_of(prompt: Prompt) -> int | None:
    """The length of a prompt, None if it keeps its own."""
    return prompt.length if isinstance(prompt, SizedPrompt) else None


def lengths_of(prompts: Iterable[Prompt]) -> list[int]:
    """The lengths that occur, rising."""
    return sorted({prompt.length for prompt in prompts if isinstance(prompt, SizedPrompt)})


def restore_lengths(path: Path, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Stored prompts with their lengths. Raises UsageError for a length that is none."""
    restored: list[Prompt] = []
    for (number, line), prompt in zip(json_lines(path, ""), prompts, strict=True):
        length = json.loads(line).get(KEY)
        if length is None:
            restored.append(prompt)
            continue
        if type(length) is not int or not 1 <= length <= LONGEST:
            raise UsageError(
                f"{path.name}, line {number}: {KEY} is not a number of tokens", hint="remove it, or get the file again"
            )
        restored.append(SizedPrompt(prompt.id, prompt.family, prompt.given, length))
    return restored
