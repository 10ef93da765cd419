"""Extends and cuts prompts to their length in tokens, of a target: the end of a prompt, with its question, stays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, takewhile
from typing import Any

from spec_commands.prompt import tokens_of
from spec_commands.prompts import Prompt

from spec_compare.inputs.sized import SizedPrompt, length_of
from spec_core import Target
from spec_core.errors import UsageError
from spec_core.toolkit import encode_part

MARK = "\u2588"
"""A text in place of a message, which shows where a chat template puts it."""
SEPARATOR = "\n\n"


def resize_prompt(prompt: SizedPrompt, prompts: Sequence[Prompt], target: Target) -> list[int]:
    """Token ids of a prompt; their number is its length. prompts: all, for texts to stand before it.

    Raises UsageError for a length without room for the chat template, and for pictures.
    """
    tokens, head, tail = _parts(prompt, target)
    room = prompt.length - head - tail
    if room < 1:
        raise UsageError(
            f"prompt {prompt.id!r}: {head + tail} tokens are the chat template's, so {prompt.length} are too few",
            hint=f"pass at least --lengths {head + tail + 1}",
        )
    body = tokens[head : len(tokens) - tail]
    before = _filler(prompt, prompts, target, room - len(body)) if len(body) < room else []
    return [*tokens[:head], *before, *body[-room:], *tokens[len(tokens) - tail :]]


def _parts(prompt: SizedPrompt, target: Target) -> tuple[list[int], int, int]:
    """The tokens, and how many at the beginning and at the end are not the prompt's own."""
    tokens = tokens_of(prompt.given, target)
    if min(tokens, default=0) < 0 or _last_text(prompt.given) is None:
        raise UsageError(
            f"prompt {prompt.id!r} has pictures, which have no tokens to extend or cut",
            hint="remove it from --prompts, or leave --lengths out",
        )
    if not _is_chat(prompt.given):
        bos = None if target.tokenizer is None else target.tokenizer.bos
        return tokens, int(bos is not None and tokens[:1] == [bos]), 0
    marked = tokens_of(_with_text(prompt.given, MARK), target)
    head = _equal(tokens, marked)
    tail = min(_equal(tokens[::-1], marked[::-1]), len(tokens) - head, len(marked) - head)
    return tokens, head, tail


def _equal(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of their common beginning."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))])


def _is_chat(content: Any) -> bool:
    return not isinstance(content, str) and isinstance(content[0], dict)


def _last_text(content: Any) -> Any:
    """The text or the ids of a prompt; of messages, the text of the last user's; None for pictures."""
    if not _is_chat(content):
        return content
    text = next((m.get("content") for m in reversed(content) if m.get("role") == "user"), None)
    return text if isinstance(text, str) else None


def _with_text(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The messages with another text of the last user's."""
    at = max(i for i, message in enumerate(messages) if message.get("role") == "user")
    return [{**message, "content": text} if i == at else message for i, message in enumerate(messages)]


def _filler(prompt: SizedPrompt, prompts: Sequence[Prompt], target: Target, count: int) -> list[int]:
    """This number of tokens: texts of the family's other prompts, which precede it in the file or come round again."""
    same = [p for p in prompts if p.family == prompt.family and length_of(p) == prompt.length]
    at = next(i for i, p in enumerate(same) if p.id == prompt.id)
    order = [*reversed(same[:at]), *reversed(same[at + 1 :])] or same
    parts: list[list[int]] = []
    left = count
    for number, other in enumerate(cycle(order)):
        if left <= 0:
            break
        parts.append(_ids_of(other, target))
        left -= len(parts[-1])
        if number + 1 == len(order) and left == count:
            raise UsageError(f"prompt {prompt.id!r} cannot be extended: it is empty", hint="remove it from --prompts")
    return [one for part in reversed(parts) for one in part][-count:]


def _ids_of(prompt: Prompt, target: Target) -> list[int]:
    """Ids of a text that stands before a prompt, with a blank line after it."""
    text = _last_text(prompt.given)
    if not isinstance(text, str):
        return [*(text or [])]
    assert target.tokenizer is not None
    return encode_part(target.tokenizer, text + SEPARATOR)
