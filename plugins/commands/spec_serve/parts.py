"""A text as it comes: its pieces with the control tokens between them, and where each token stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from spec_core import Emitted, Tokenizer
from spec_core.toolkit import decode_after, stream_after
from spec_serve.job import Job


@attrs.frozen
class Mark:
    """A control token, which has no text. name: how it is written in a prompt."""

    name: str


Piece: TypeAlias = str | Mark


@attrs.frozen
class AnswerPart:
    """A piece of an answer. kind: ``content``, or ``reasoning`` for what is thought before it."""

    kind: str
    text: str


@attrs.define(eq=False)
class Places:
    """Counts the characters of a text before each of its tokens, also where the end of the text is held back."""

    stream: Any
    at: int = 0

    @classmethod
    def of(cls, job: Job, tokenizer: Tokenizer, at: int = 0) -> Places:
        """Places in the text of a job, which follows its prompt. at: characters before the text."""
        request = job.request
        exact = request.constraint is not None
        return cls(stream_after(tokenizer, list(request.prompt), exact=exact), at)  # type: ignore[arg-type]

    def before(self, token: int) -> int:
        """Characters before this token, the next of the text."""
        at = self.at
        self.at += len(self.stream.put(token))
        return at


@attrs.define(eq=False)
class Pieces:
    """The visible text of a sequence and its control tokens in their order.

    marks: control tokens that are told, by id.
    """

    marks: Mapping[int, Mark]
    places: Places
    _shown: int = 0
    _waiting: deque[tuple[int, Mark]] = attrs.field(factory=deque)

    def put(self, events: Iterable[Emitted]) -> list[Piece]:
        """Pieces that these events show. A mark comes when the text before it is visible."""
        pieces: list[Piece] = []
        for event in events:
            at = self.places.before(event.token)
            if (mark := self.marks.get(event.token)) is not None:
                self._waiting.append((at, mark))
            pieces += self._visible(event.text)
        return pieces

    def _visible(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        while self._waiting and self._waiting[0][0] <= self._shown + len(text):
            at, mark = self._waiting.popleft()
            before, text = text[: at - self._shown], text[at - self._shown :]
            self._shown = at
            pieces += [before, mark] if before else [mark]
        self._shown += len(text)
        return [*pieces, text] if text else pieces


def marks_of(names: Iterable[str], tokenizer: Tokenizer) -> dict[int, Mark]:
    """Marks of the names that are control tokens of this tokenizer."""
    encoded = {name: tokenizer.encode(name, special=True, bos=False) for name in names}
    return {ids[0]: Mark(name) for name, ids in encoded.items() if len(ids) == 1 and not tokenizer.token_bytes(ids[0])}


def spell_tokens(ids: Iterable[int], marks: Mapping[int, Mark], tokenizer: Tokenizer) -> list[Piece]:
    """Tokens of a prompt as text and marks."""
    pieces: list[Piece] = []
    read: list[int] = []
    run: list[int] = []
    for token in ids:
        if token not in marks:
            run.append(token)
            continue
        pieces += [decode_after(tokenizer, run, read)] if run else []
        pieces.append(marks[token])
        read, run = [*read, *run, token], []
    return [*pieces, decode_after(tokenizer, run, read)] if run else pieces
