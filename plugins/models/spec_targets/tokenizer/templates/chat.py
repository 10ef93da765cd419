"""The prompt of a conversation: what a template sees is what transformers shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec_core.errors import UsageError
from spec_targets.tokenizer.templates.workers import TemplateFailed, workers

MAX_CHARACTERS = 4_000_000
MEND = "the template comes with the model; give the prompt as text (-p), or use another file of the model"
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of a message's reasoning; the first is the usual one of templates."""


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    special: Mapping[str, str] | None = None,
    **keywords: Any,
) -> str:
    """The prompt of a conversation. special: texts of special tokens by their names, such as ``bos_token``.

    Raises UsageError for a template that fails or uses too much time or memory.
    """
    try:
        variables = plain_value({**(special or {}), **keywords, "tools": tools, "documents": documents})
        variables["messages"] = [_message(plain_value(message)) for message in messages]
        variables["add_generation_prompt"] = add_generation_prompt
        return workers.render(template, variables, MAX_CHARACTERS)
    except (TemplateFailed, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split()) if str(error).isprintable() else repr(str(error))
        raise UsageError(f"the chat template failed: {reason or type(error).__name__}", hint=MEND) from error


def plain_value(value: Any) -> Any:
    """A value of JSON's types alone; the name of its type in place of any other."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {plain_value(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain_value(item) for item in value)
    if isinstance(value, str):  # of a subclass, whose own methods a template must not call
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return int.__int__(value) if isinstance(value, int) else float.__float__(value)
    return f"<{type(value).__name__}>"


def _message(message: Any) -> Any:
    """Message without keys that have no value, and with its reasoning by the names that templates read."""
    if not isinstance(message, dict):
        raise ValueError(f"a message is {type(message).__name__}")
    message = {key: value for key, value in message.items() if value is not None}
    reasoning = next((message[name] for name in REASONING if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
