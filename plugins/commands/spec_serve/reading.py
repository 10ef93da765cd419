"""Reads the text of a model as an answer: reasoning, content and calls, by the form of its family.

The chat template and the control tokens say which form: channels of gpt-oss, or thinking between two marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from spec_core import Emitted, Tokenizer
from spec_serve import harmony, thinking
from spec_serve.calls import families
from spec_serve.calls.families import CallForm
from spec_serve.harmony import HarmonyReader
from spec_serve.job import Job
from spec_serve.parts import AnswerPart, Mark, Piece, Pieces, Places, marks_of, spell_tokens
from spec_serve.schemas import ReasoningFormat, Tool
from spec_serve.thinking import Thinking, ThoughtReader
from spec_serve.tool_calls import Call, CallReader

NAMES = tuple(dict.fromkeys((*harmony.MARKS, *thinking.WORDS, *families.WORDS)))
"""Control tokens that are part of an answer's form. Some vocabularies have them as text."""
TAIL = 16
"""Tokens at the end of a prompt in which the opening of thinking is looked for."""

_marks: WeakKeyDictionary[Tokenizer, dict[int, Mark]] = WeakKeyDictionary()


def has_channels(template: str | None) -> bool:
    return bool(template) and harmony.CHANNEL in str(template) and harmony.MESSAGE in str(template)


def known_marks(tokenizer: Tokenizer) -> dict[int, Mark]:
    if tokenizer not in _marks:
        _marks[tokenizer] = marks_of(NAMES, tokenizer)
    return _marks[tokenizer]


def thinking_of(tokenizer: Tokenizer) -> Thinking | None:
    """The form in which models of this template and vocabulary think."""
    return thinking.thinking_of(tokenizer.chat_template, (mark.name for mark in known_marks(tokenizer).values()))


def call_form_of(tokenizer: Tokenizer) -> CallForm:
    """The form of calls that models of this template and vocabulary are trained on."""
    return families.form_of(tokenizer.chat_template, (mark.name for mark in known_marks(tokenizer).values()))


@attrs.frozen
class Reads:
    """Options of reading the answers of a request.

    tools: functions that the model may call. single: no more than one call. format: where thinking goes. whole: the
    text is all answer, as with a constraint that holds from its beginning.
    """

    tools: Sequence[Tool] = ()
    single: bool = False
    format: ReasoningFormat = "auto"
    whole: bool = False

    def reader(self, job: Job, tokenizer: Tokenizer) -> Reader:
        """A reader of the text of this job."""
        prompt: list[Any] = list(job.request.prompt)
        marks = known_marks(tokenizer)
        pieces = Pieces(marks, Places.of(job, tokenizer))
        calls = CallReader.of(self.tools, self.single, call_form_of(tokenizer))
        tags = calls if self.tools or calls.form.beginning else None
        if self.whole:
            return Reader(pieces, calls if self.tools else None)
        if has_channels(tokenizer.chat_template):
            return Reader(pieces, harmony_reader=self._channels(prompt, tokenizer, calls))
        thoughts = None
        if (form := thinking_of(tokenizer)) is not None and self.format != "none":
            tail = "".join(_as_text(p) for p in spell_tokens(prompt[-TAIL:], marks, tokenizer))
            thoughts = ThoughtReader.after(tail, form)
        legacy = self.format == "deepseek-legacy"
        return Reader(pieces, tags, thoughts, legacy=legacy)

    def _channels(self, prompt: list[Any], tokenizer: Tokenizer, calls: CallReader) -> HarmonyReader:
        """A reader that knows what of the message stands in the prompt."""
        marks = known_marks(tokenizer)
        reported, written = self.format != "none", self.format in ("none", "deepseek-legacy")
        reader = HarmonyReader(calls.tools, self.single, reported, written)
        starts = {token for token, mark in marks.items() if mark.name == harmony.START}
        at = next((i for i in range(len(prompt) - 1, -1, -1) if prompt[i] in starts), None)
        for piece in spell_tokens(prompt[at + 1 :], marks, tokenizer) if at is not None else ():
            reader.put("" if piece == "assistant" else piece)
        return reader


@attrs.define(eq=False)
class Reader:
    """Reads the events of one text."""

    pieces: Pieces
    call_reader: CallReader | None = None
    thoughts: ThoughtReader | None = None
    harmony_reader: HarmonyReader | None = None
    legacy: bool = False

    @property
    def calls(self) -> list[Call]:
        """All calls so far."""
        reader = self.harmony_reader or self.call_reader
        return [] if reader is None else reader.calls

    def put(self, events: Iterable[Emitted]) -> list[AnswerPart | Call]:
        """Parts that these events add to the answer, in order."""
        pieces = self.pieces.put(events)
        if self.harmony_reader is not None:
            return _join(part for piece in pieces for part in self.harmony_reader.put(piece))
        text = "".join(map(_as_text, pieces))
        if self.thoughts is None:
            return self._read_answer(text)
        thought, answer = self.thoughts.put(text)
        return [*_reasoning(thought), *self._read_answer(text if self.legacy else answer)]

    def end(self) -> list[AnswerPart | Call]:
        """Parts that were held back until the end of the text."""
        if self.harmony_reader is not None:
            return _join(self.harmony_reader.end())
        thought, answer = self.thoughts.end() if self.thoughts is not None else ("", "")
        parts = [*_reasoning(thought), *self._read_answer("" if self.legacy else answer)]
        return [*parts, *self._parts(self.call_reader.end() if self.call_reader is not None else ())]

    def _read_answer(self, text: str) -> list[AnswerPart | Call]:
        if not text:
            return []
        return [AnswerPart("content", text)] if self.call_reader is None else self._parts(self.call_reader.put(text))

    @staticmethod
    def _parts(pieces: Iterable[str | Call]) -> list[AnswerPart | Call]:
        return _join(AnswerPart("content", one) if isinstance(one, str) else one for one in pieces)


def _as_text(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece.name


def _reasoning(text: str) -> list[AnswerPart | Call]:
    return [AnswerPart("reasoning", text)] if text else []


def _join(parts: Iterable[AnswerPart | Call]) -> list[AnswerPart | Call]:
    """Join neighbours of one kind."""
    joined: list[AnswerPart | Call] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, AnswerPart) and isinstance(last, AnswerPart) and last.kind == part.kind:
            joined[-1] = AnswerPart(part.kind, last.text + part.text)
        else:
            joined.append(part)
    return joined
