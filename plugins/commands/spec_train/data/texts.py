"""Texts and prompts to train on: from a JSONL file, or from a target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from spec_commands.prompt import check_messages
from spec_commands.prompts import json_lines

from spec_core import Target
from spec_core.errors import UsageError
from spec_core.toolkit import encode_after, training_texts
from spec_train.data.samples import TextSample

EXAMPLE = (
    'write lines of {"text": "..."}, {"prompt": "...", "answer": "..."} or {"prompt": "..."}; '
    'instead of "prompt": "messages": [{"role": "user", "content": "..."}]'
)
HELD_OUT = 0.05
"""Share of a file's texts that is held out for the evaluation."""
HELD_OUT_MAX = 16
"""Max number of texts that are held out."""


@attrs.frozen
class TextEntry:
    """A line of the file: a prompt, as text or as messages, may be empty; and the text after it, None if the target has
    to answer first."""

    prompt: str | list[dict[str, Any]]
    text: str | None

    def prompt_tokens(self, target: Target) -> list[int]:
        """Token ids; messages go through the chat template. Raises UsageError if the model has no template."""
        tokenizer: Any = target.tokenizer
        if isinstance(self.prompt, str):
            return tokenizer.encode(self.prompt)
        if tokenizer.chat_template is None:
            raise UsageError(f"{target.info.name} has no chat template", hint='use "prompt" in place of "messages"')
        return tokenizer.encode_chat(self.prompt)


def read_entries(path: Path) -> list[TextEntry]:
    """Entries of a file. Raises UsageError with the number of the first invalid line."""
    entries = [_entry(path, i, line) for i, line in json_lines(path, f"--data is a JSONL file: {EXAMPLE}")]
    if not entries:
        raise UsageError(f"{path} has no texts", hint=EXAMPLE)
    return entries


def _entry(path: Path, number: int, line: str) -> TextEntry:
    try:
        fields = json.loads(line)
        texts = {key: fields.get(key) for key in ("text", "prompt", "answer")}
        messages = fields.get("messages")
    except (ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path.name}, line {number}: not a JSON object", hint=EXAMPLE) from error
    wrong = any(not isinstance(value, str) for value in texts.values() if value is not None)
    if wrong or (messages is None and not any(texts.values())):
        raise UsageError(f"{path.name}, line {number}: no text and no prompt", hint=EXAMPLE)
    answer = texts["answer"] if texts["answer"] is not None else texts["text"]
    if messages is not None and texts["prompt"] is None:
        return TextEntry(check_messages(f"{path.name}, line {number}", messages, EXAMPLE), answer)
    if texts["prompt"] is None:
        return TextEntry("", answer)
    return TextEntry(texts["prompt"], answer)


def of_target(target: Target) -> list[TextEntry]:
    """Texts that the target provides. Raises UsageError if it has none."""
    provided = training_texts(target)
    if provided is None:
        raise UsageError(f"{target.info.name} provides no training text", hint=f"pass --data FILE.jsonl; {EXAMPLE}")
    return [TextEntry("", text) for text in provided.texts()]


def prompts_of_target(target: Target, count: int) -> list[TextEntry]:
    """Prompts that the target provides, and has to answer first, at most ``count``."""
    provided = training_texts(target)
    return [] if provided is None or not count else [TextEntry(text, None) for text in provided.prompts(count)]


def tokenize_entries(entries: Sequence[TextEntry], target: Target) -> list[TextSample]:
    """The entries that have a text, as token ids."""
    tokenizer: Any = target.tokenizer
    texts = []
    for entry in entries:
        if entry.text is not None:
            prompt = entry.prompt_tokens(target) if entry.prompt else []
            text = encode_after(tokenizer, entry.text, prompt) if prompt else tokenizer.encode(entry.text)
            texts.append(TextSample((*prompt, *text), len(prompt)))
    return texts


def split_entries(entries: list[TextEntry], seed: int) -> tuple[list[TextEntry], list[TextEntry]]:
    """Entries for training and entries for the evaluation, by the seed. Raises UsageError for fewer than two."""
    if len(entries) < 2:
        raise UsageError("there is one text, two were needed", hint="add another: one is held out for the evaluation")
    order = np.random.default_rng(seed).permutation(len(entries))
    held = max(1, min(HELD_OUT_MAX, round(HELD_OUT * len(entries))))
    return [entries[i] for i in sorted(order[held:])], [entries[i] for i in sorted(order[:held])]


def pieces(texts: Sequence[TextSample], length: int) -> list[TextSample]:
    """Texts cut into pieces of at most ``length`` tokens; pieces that are part of a prompt only are left out."""
    blocks = []
    for text in texts:
        for at in range(0, len(text.tokens), length):
            piece = TextSample(text.tokens[at : at + length], max(0, text.start - at))
            blocks += [piece] if piece.start < len(piece.tokens) else []
    return blocks


def long_enough(texts: Sequence[TextSample], min_tokens: int, what: str) -> list[TextSample]:
    """Texts that have something to train on. Raises UsageError if none has."""
    usable = [text for text in texts if len(text.tokens) >= max(min_tokens, text.start + 1)]
    if texts and not usable:
        longest = max(len(text.tokens) for text in texts)
        raise UsageError(
            f"the longest {what} has {longest} tokens, {min_tokens} were needed",
            hint="pass longer texts, a smaller --block, or a smaller --depth",
        )
    return usable
