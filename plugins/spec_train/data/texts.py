"""What is learnt from: texts and prompts of a JSONL file, or the texts that a target brings along."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from spec_cli.prompt import check_messages
from spec_cli.prompts import json_lines

from spec_core import Target
from spec_core.errors import UsageError
from spec_train.lessons import Row

EXAMPLE = (
    'write lines of {"text": "..."}, {"prompt": "...", "answer": "..."} or {"prompt": "..."}; '
    'in place of "prompt" also "messages": [{"role": "user", "content": "..."}]'
)
FEW = 8192
"""Fewest tokens that can be drafted of a vocabulary that is at least twice as large."""
HELD_OUT, MOST_HELD_OUT = 0.05, 16
"""Share of a file's texts that is never trained on, and most of them."""


@attrs.frozen
class Entry:
    """A line: a prompt that may be empty, as a text or as messages, and what follows it; None where that is still to be
    written."""

    prompt: str | list[dict[str, Any]]
    text: str | None

    def prompt_tokens(self, target: Target) -> list[int]:
        """The prompt's; of messages through the chat template. Raises UsageError for a model that has none."""
        tokenizer = target.tokenizer
        if isinstance(self.prompt, str):
            return tokenizer.encode(self.prompt)
        if tokenizer.chat_template is None:
            raise UsageError(f"{target.info.name} has no chat template", hint='give "prompt" in place of "messages"')
        return tokenizer.encode_chat(self.prompt)


def read(path: Path) -> list[Entry]:
    """Entries of a file. Raises UsageError naming the line that is wrong."""
    found = [_entry(path, i, line) for i, line in json_lines(path, f"--data is a JSONL file: {EXAMPLE}")]
    if not found:
        raise UsageError(f"{path} has no texts", hint=EXAMPLE)
    return found


def _entry(path: Path, number: int, line: str) -> Entry:
    try:
        given = json.loads(line)
        texts = {key: given.get(key) for key in ("text", "prompt", "answer")}
        messages = given.get("messages")
    except (ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path.name}, line {number}: no JSON object", hint=EXAMPLE) from error
    wrong = any(not isinstance(value, str) for value in texts.values() if value is not None)
    if wrong or (messages is None and not any(texts.values())):
        raise UsageError(f"{path.name}, line {number}: neither a text nor a prompt", hint=EXAMPLE)
    answer = texts["answer"] if texts["answer"] is not None else texts["text"]
    if messages is not None and texts["prompt"] is None:
        return Entry(check_messages(f"{path.name}, line {number}", messages, EXAMPLE), answer)
    if texts["prompt"] is None:
        return Entry("", answer)
    return Entry(texts["prompt"], answer)


def brought(target: Target) -> list[Entry]:
    """Texts that came with the model. Raises UsageError where there are none."""
    texts = target.info.extras.get("texts")
    if texts is None:
        raise UsageError(f"{target.info.name} brings no training text", hint=f"give some: --data FILE.jsonl; {EXAMPLE}")
    return [Entry("", text) for text in texts()]


def asked(target: Target, most: int) -> list[Entry]:
    """Prompts that came with the model, to be answered by it."""
    questions = target.info.extras.get("questions")
    return [] if questions is None or not most else [Entry(text, None) for text in questions(most)]


def tokenized(entries: Sequence[Entry], target: Target) -> list[Row]:
    """Entries whose text is there, as tokens."""
    encode = target.tokenizer.encode
    rows = []
    for entry in entries:
        if entry.text is not None:
            prompt = entry.prompt_tokens(target) if entry.prompt else []
            rows.append(Row((*prompt, *encode(entry.text, bos=not prompt)), len(prompt)))
    return rows


def split(entries: list[Entry], seed: int) -> tuple[list[Entry], list[Entry]]:
    """Those to learn from, and those to be tried on; the same ones for the same seed. Raises UsageError."""
    if len(entries) < 2:
        raise UsageError("there is one text", hint="give at least two: one is held out, to be tried on")
    order = np.random.default_rng(seed).permutation(len(entries))
    held = max(1, min(MOST_HELD_OUT, round(HELD_OUT * len(entries))))
    return [entries[i] for i in sorted(order[held:])], [entries[i] for i in sorted(order[:held])]


def pieces(rows: Sequence[Row], length: int) -> list[Row]:
    """Texts cut into pieces of at most ``length`` tokens; what is only a prompt is left out."""
    found = []
    for row in rows:
        for at in range(0, len(row.tokens), length):
            piece = Row(row.tokens[at : at + length], max(0, row.start - at))
            found += [piece] if piece.start < len(piece.tokens) else []
    return found


def long_enough(rows: Sequence[Row], least: int, what: str) -> list[Row]:
    """Rows that teach anything. Raises UsageError where none does."""
    good = [row for row in rows if len(row.tokens) >= max(least, row.start + 1)]
    if rows and not good:
        longest = max(len(row.tokens) for row in rows)
        raise UsageError(
            f"the longest {what} has {longest} tokens, {least} were needed",
            hint="give longer texts, a smaller --block, or a smaller --depth",
        )
    return good


def frequencies(rows: Sequence[Row], vocab: int) -> np.ndarray:
    """[vocab] how often each token occurs."""
    counts = np.zeros(vocab, dtype=np.int64)
    for row in rows:
        counts += np.bincount(row.tokens, minlength=vocab)[:vocab]
    return counts


def enough(vocab: int) -> int:
    """How many tokens a head drafts unless it is told: of a large vocabulary a quarter, as published heads do."""
    return vocab if vocab < 2 * FEW else max(FEW, vocab // 4)


def most_frequent(answers: np.ndarray, all_texts: np.ndarray, most: int) -> tuple[np.ndarray, float]:
    """Ids, ascending, of the ``most`` most frequent tokens, and what share they are. Counts of answers go before those
    of everything, which decide where answers have none."""
    chosen = np.sort(np.lexsort((-all_texts, -answers))[:most])
    counts = answers if answers.any() else all_texts
    return chosen, float(counts[chosen].sum() / max(1, counts.sum()))


def unused(counts: np.ndarray) -> int:
    """The last token that no text has: to stand for an unknown one. Raises UsageError where all occur."""
    free = np.flatnonzero(counts == 0)
    if not len(free):
        raise UsageError("every token occurs in the texts", hint="name one that may stand for unknown ones: --mask ID")
    return int(free[-1])
