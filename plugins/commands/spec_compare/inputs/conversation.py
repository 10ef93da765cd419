"""Conversations: prompts of several turns, each asked with the answers to the turns before."""

from __future__ import annotations

from typing import Any

import attrs
from spec_commands.prompts import Prompt

from spec_core import Target

Messages = list[dict[str, Any]]
PICTURE = "picture"
"""Name of the file of a picture in a line of stored prompts."""


@attrs.frozen
class Conversation(Prompt):
    """A prompt whose turns are user messages. given: the first one, as a request takes it."""

    turns: tuple[str, ...] = ()


def turns_of(prompt: Prompt) -> int:
    """Number of turns."""
    return len(prompt.turns) if isinstance(prompt, Conversation) else 1


def next_prompt(prompt: Prompt, answers: list[str], target: Target) -> Any:
    """The prompt of the turn after these answers, as a request takes it; messages become token ids."""
    if not answers or not isinstance(prompt, Conversation):
        return prompt.given
    from spec_commands.prompt import tokens_of

    talk = messages(prompt, answers)
    return talk if picture_of(prompt) is not None else tokens_of(talk, target)


def messages(conversation: Conversation, answers: list[str]) -> Messages:
    """The messages before the answer that comes next."""
    talk: Messages = []
    for number, (turn, answer) in enumerate(zip(conversation.turns, answers, strict=False)):
        first = number == 0 and not isinstance(conversation.given[0], int)
        talk += [*(conversation.given if first else [{"role": "user", "content": turn}])]
        talk += [{"role": "assistant", "content": answer}]
    return [*talk, {"role": "user", "content": conversation.turns[len(answers)]}]


def first_message(text: str, picture: str | None = None) -> Messages:
    """The message of the first turn. picture: a file that it shows."""
    shown = [] if picture is None else [{"type": "image", "image": picture}]
    return [{"role": "user", "content": [*shown, {"type": "text", "text": text}] if shown else text}]


def picture_of(prompt: Prompt) -> str | None:
    """The file of the picture of a conversation, None without one."""
    content = prompt.given[0].get("content") if prompt.given and isinstance(prompt.given[0], dict) else None
    parts = content if isinstance(content, list) else []
    return next((part["image"] for part in parts if part.get("type") == "image" and "image" in part), None)
