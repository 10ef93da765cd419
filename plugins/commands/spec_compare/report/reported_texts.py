"""The texts of a report: which method proposed each token, and where drafts were rejected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
from spec_commands.html_page import clean
from spec_commands.prompts import Prompt

from spec_compare.figures.outcome import Outcome
from spec_compare.inputs.conversation import Conversation
from spec_compare.records.record import Record

TOKENS_MAX = 40_000
"""Max tokens of all texts of a report; further texts are only counted."""
BEGINNING = 90
"""Max characters of a prompt in the list of texts."""


@attrs.frozen
class Span:
    """Tokens of one source, a method or None for the target. rejected: a draft was rejected before them."""

    text: str
    source: str | None
    rejected: bool = False


@attrs.frozen
class ReportedText:
    """One text by one contender. spans: empty if its tokens were not recorded."""

    contender: str
    turn: int
    spans: list[Span]
    plain: str
    drafted: int
    tokens: int
    rejections: int
    finish: str


@attrs.frozen
class PromptTexts:
    """All texts of a prompt.

    beginning: its first words. given: the prompt as text, a message a line. Both are empty if it was not stored.
    """

    prompt: str
    family: str
    beginning: str
    given: str
    texts: list[ReportedText]


def texts(outcome: Outcome, tokens_max: int = TOKENS_MAX) -> tuple[list[PromptTexts], int]:
    """The first repeat of every prompt, family by family, and the number of prompts that were left out."""
    by_prompt: dict[tuple[str, str], list[Record]] = {}
    for record in (r for lap in outcome.laps if lap.repeat == 0 for r in lap.records):
        by_prompt.setdefault((record.family, record.prompt), []).append(record)
    prompt_texts = {prompt.id: (beginning(prompt), clean(given_text(prompt))) for prompt in outcome.prompts}
    shown: list[PromptTexts] = []
    left = tokens_max
    for (family, prompt), records in _in_turns(by_prompt):
        left -= sum(record.token_count for record in records)
        if left >= 0:
            ordered = sorted(records, key=lambda r: (r.turn, r.contender != r.baseline))
            own_texts = [reported_text(record) for record in ordered]
            shown.append(PromptTexts(clean(prompt), clean(family), *prompt_texts.get(prompt, ("", "")), own_texts))
    return shown, len(by_prompt) - len(shown)


def given_text(prompt: Prompt) -> str:
    """The prompt as text: its turns, its messages with their roles, or its token ids."""
    if isinstance(prompt, Conversation):
        return "\n\n".join(prompt.turns)
    if isinstance(prompt.given, str):
        return prompt.given
    if isinstance(prompt.given[0], int):
        return f"tokens {', '.join(map(str, prompt.given))}"
    return "\n\n".join(f"{message.get('role')}: {message.get('content')}" for message in prompt.given)


def beginning(prompt: Prompt) -> str:
    """The first words of a prompt on one line; of a chat, of the user's first message."""
    content = prompt.given
    if isinstance(content, list) and isinstance(content[0], dict):
        messages = [message for message in content if message.get("role") == "user"] or content
        text = content_text(messages[0].get("content"))
    else:
        text = given_text(prompt)
    words = " ".join(clean(text[: 8 * BEGINNING]).split())
    return words if len(words) <= BEGINNING else f"{words[: BEGINNING - 1]}…"


def content_text(content: Any) -> str:
    """The content of a message as text; parts that are no texts are left out."""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def _in_turns(
    by_prompt: dict[tuple[str, str], list[Record]],
) -> Iterator[tuple[tuple[str, str], list[Record]]]:
    """One prompt of each family after the other."""
    families: dict[str, list[tuple[str, str]]] = {}
    for key in by_prompt:
        families.setdefault(key[0], []).append(key)
    for i in range(max(map(len, families.values()), default=0)):
        for keys in families.values():
            if i < len(keys):
                yield keys[i], by_prompt[keys[i]]


def reported_text(record: Record) -> ReportedText:
    spans = list(merge_spans(_tokens(record))) if record.pieces is not None and record.trace is not None else []
    drafted = record.draft_statistics.accepted
    rejections = sum(1 for d, a in zip(record.steps.depth, record.steps.accepted, strict=True) if a < d)
    return ReportedText(
        record.contender,
        record.turn,
        spans,
        "" if spans else clean(record.text),
        min(drafted, record.token_count),
        record.token_count,
        rejections,
        record.finish,
    )


def _tokens(record: Record) -> Iterator[Span]:
    """One span per token. The first token and the last of each step are the target's own."""
    pieces, trace, steps = record.pieces or [], record.trace, record.steps
    at = 1
    yield from (Span(clean(piece), None) for piece in pieces[:1])
    assert trace is not None
    for i, emitted in enumerate(steps.emitted):
        own_pieces, path = pieces[at : at + emitted], trace.path[i]
        for n, piece in enumerate(own_pieces):
            own = n >= len(path)
            source = None if own or not path[n] < len(trace.sources[i]) else trace.sources[i][path[n]]
            yield Span(clean(piece), source, own and steps.accepted[i] < steps.depth[i])
        at += emitted


def merge_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Neighbours of one source as one span; a span begins where a draft was rejected."""
    last: Span | None = None
    for span in spans:
        if last is not None and span.source == last.source and not span.rejected:
            last = attrs.evolve(last, text=last.text + span.text)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def sources(shown: Sequence[PromptTexts]) -> list[str]:
    """The methods that drafted a token, in order of appearance."""
    spans = (span for prompt in shown for one in prompt.texts for span in one.spans)
    return list(dict.fromkeys(span.source for span in spans if span.source is not None))
