"""Tool calls in a model's text, found while it comes.

Read are an object ``{"name": ..., "arguments": {...}}`` (Hermes, Qwen 2.5 and 3, SmolLM), ``<function=NAME>`` with
``<parameter=KEY>`` (Qwen 3 Coder and 3.5) and a name with ``<arg_key>`` and ``<arg_value>`` (GLM 4.5), each between
``<tool_call>`` and ``</tool_call>``; ``<function=NAME>`` without these; lists of objects after ``[TOOL_CALLS]``
(Mistral) and ``<|tool_call|>`` (Phi 4). A text that is one object ``{"name": ..., "parameters": {...}}`` to its end is
a call too (Llama 3). Calls of gpt-oss have channels of their own (harmony.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from spec_serve.call_forms import (
    CLOSING,
    OPENING,
    OPENINGS,
    Call,
    JsonEnd,
    NeedMore,
    NoCall,
    Reading,
    Tools,
    object_call,
)
from spec_serve.schemas import Tool

__all__ = ["CLOSING", "OPENING", "Call", "CallReader"]

FIRST_KEY = re.compile(r'\{\s*(?:\Z|"(\w*)(?:\Z|(")))')
KEYS = ("name", "arguments", "parameters", "type", "id")
"""Keys with which the object of a call may begin."""
OPENED = re.compile("|".join(re.escape(opening) for opening in OPENINGS))


@attrs.define(eq=False)
class CallReader:
    """Splits a text, piece by piece, into what is said and the calls in it.

    tools: {name: JSON schema of its parameters}. A call of none of these tools stays text.
    single: at most one call is read, what follows it is left out.
    """

    tools: Tools
    single: bool = False
    calls: list[Call] = attrs.field(factory=list)
    _rest: str = ""
    _begun: bool = False
    _after: bool = False
    _gap: str = ""
    _reading: Reading | None = None
    _object: JsonEnd | None = None

    @classmethod
    def of(cls, tools: Iterable[Tool], single: bool = False) -> CallReader:
        return cls({t.function.name: t.function.parameters or {} for t in tools}, single)

    def put(self, text: str) -> list[str | Call]:
        """New text and the calls that it completed, in order."""
        self._rest += text
        return self._all(final=False)

    def end(self) -> list[str | Call]:
        """The remaining text: a call whose closing is missing counts where it is whole."""
        pieces = self._all(final=True)
        rest, self._rest = self._rest, ""
        return [*pieces, *([rest] if rest and not (self._after and not rest.strip()) else [])]

    def _all(self, final: bool) -> list[str | Call]:
        pieces: list[str | Call] = []
        try:
            while self._rest:
                pieces += self._next(final)
        except NeedMore:
            pass
        return pieces

    def _next(self, final: bool) -> list[str | Call]:
        """The next pieces. Raises NeedMore, in the end for what is no call."""
        if self._reading is not None:
            return self._read(final)
        if not self._begun:
            return self._whole(final)
        return self._text_before(final)

    def _whole(self, final: bool) -> list[str | Call]:
        """A call where the text is one object to its end."""
        start = self._rest.lstrip()
        if not start and not final:
            raise NeedMore
        if not _may_be_call(start):
            self._begun = True
            return []
        try:
            self._object = self._object or JsonEnd(len(self._rest) - len(start))
            end = self._object.find(self._rest)
            if self._rest[end:].strip():
                raise NoCall
            if not final:
                raise NeedMore
            call = object_call(self._rest[:end], self.tools)
        except NoCall:
            self._begun = True
            return []
        except NeedMore:
            self._begun = final
            if final:
                return []
            raise
        self._rest, self._begun = "", True
        return self._keep([call])

    def _text_before(self, final: bool) -> list[str | Call]:
        """Text before a call; white space before it, and what may be the beginning of an opening, is held back."""
        match = OPENED.search(self._rest)
        end = match.start() if match else len(self._rest) - (0 if final else _overlap(self._rest))
        text = self._rest[:end].lstrip() if self._after else self._rest[:end]
        before = text if final and match is None else text.rstrip()
        self._after = self._after and not before
        if match:
            self._rest, self._gap, self._reading = self._rest[end:], text[len(before) :], Reading(self.tools)
            return [before] if before else []
        self._rest = text[len(before) :] + self._rest[end:]
        if not before:
            raise NeedMore
        return [before]

    def _read(self, final: bool) -> list[str | Call]:
        assert self._reading is not None
        try:
            read = self._reading.read(self._rest, final)
        except NoCall:  # the opening is text; a call may follow it
            opening, self._rest = self._gap + self._rest[:1], self._rest[1:]
            self._reading, self._after = None, False
            return [opening]
        self._reading, self._after = None, True
        self._rest = self._rest[read.end :]
        return self._keep(read.calls)

    def _keep(self, calls: list[Call]) -> list[str | Call]:
        kept = calls[: max(0, 1 - len(self.calls))] if self.single else calls
        self.calls += kept
        return list(kept)


def _may_be_call(text: str) -> bool:
    """Whether a text that begins so may be the object of a call."""
    match = FIRST_KEY.match(text)
    if match is None:
        return False
    key, closed = match[1] or "", match[2]
    return key in KEYS if closed else any(name.startswith(key) for name in KEYS)


def _overlap(text: str) -> int:
    """Length of the longest end of the text with which an opening begins."""
    longest = max(map(len, OPENINGS)) - 1
    ends = range(min(len(text), longest), 0, -1)
    return next((n for n in ends if any(opening.startswith(text[-n:]) for opening in OPENINGS)), 0)
