"""Conversations: prompts of several turns, each asked with the answers to the turns before."""

from __future__ import annotations

from typing import Any

import attrs
from spec_commands.prompts import Prompt

from spec_core import Target

Messages = list[dict[str, Any]]


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

    return tokens_of(messages(prompt, answers), target)


def messages(prompt: Conversation, answers: list[str]) -> Messages:
    """The messages before the answer that comes next."""
    talk: Messages = []
    for turn, answer in zip(prompt.turns, answers, strict=False):
        talk += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*talk, {"role": "user", "content": prompt.turns[len(answers)]}]
