"""Tool calls in a model's text, found while it comes, in the forms of calls/families.py.

Calls of gpt-oss have channels of their own (harmony.py).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from functools import cache

import attrs

from spec_serve.calls.call import Call, Tools
from spec_serve.calls.families import OPENINGS, TAGGED, CallForm, read_beginning
from spec_serve.calls.forms import Form, Found
from spec_serve.calls.text import NoCall, Step, Text, skip_space
from spec_serve.schemas import Tool

__all__ = ["Call", "CallReader"]

TRIM = 1 << 16
"""Characters that were read and are kept at most, until the text is shortened."""


@attrs.frozen(eq=False)
class Openings:
    """Texts that begin calls, each with its reader. beginnings: their beginnings, which may become one of them."""

    forms: dict[str, Form]
    pattern: re.Pattern[str] = attrs.field(init=False)
    beginnings: frozenset[str] = attrs.field(init=False)

    @pattern.default
    def _compile_pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(opening) for opening in sorted(self.forms, key=len, reverse=True)))

    @beginnings.default
    def _list_beginnings(self) -> frozenset[str]:
        return frozenset(opening[:n] for opening in self.forms for n in range(1, len(opening)))

    def overlap(self, text: str) -> int:
        """Length of the longest end of the text with which an opening begins."""
        longest = max(map(len, self.forms)) - 1
        return next((n for n in range(min(len(text), longest), 0, -1) if text[-n:] in self.beginnings), 0)


@cache
def openings_of(form: CallForm) -> Openings:
    """Openings in texts of a model with this form."""
    return Openings({**OPENINGS, **form.openings})


@attrs.define(eq=False)
class CallReader:
    """Splits a text, piece by piece, into what is said and the calls in it.

    The result depends on the text alone, not on the pieces, and takes time in proportion to its length.

    tools: {name: JSON schema of its parameters}. A call of none of these tools stays text.
    single: at most one call is read, what follows it is left out. form: that of the model.
    """

    tools: Tools
    single: bool = False
    form: CallForm = TAGGED
    calls: list[Call] = attrs.field(factory=list)
    _text: Text = attrs.field(factory=Text)
    _parts: list[str | Call] = attrs.field(factory=list)
    _ids: set[str] = attrs.field(factory=set)
    _steps: Generator[None, None, None] | None = None

    @classmethod
    def of(cls, tools: Iterable[Tool], single: bool = False, form: CallForm = TAGGED) -> CallReader:
        return cls({t.function.name: t.function.parameters or {} for t in tools}, single, form)

    def put(self, text: str) -> list[str | Call]:
        """New text and the calls that it completed, in order."""
        self._text.append(text)
        return self._go_on()

    def end(self) -> list[str | Call]:
        """The remaining text: a call whose closing is missing counts where it is whole."""
        self._text.final = True
        return self._go_on()

    def _go_on(self) -> list[str | Call]:
        if self._steps is None:
            self._steps = self._read()
        next(self._steps, None)
        parts, self._parts = self._parts, []
        return parts

    def _read(self) -> Step[None]:
        at = yield from self._read_beginning()
        after = at > 0
        while True:
            at, opening, after = yield from self._read_text(at, after)
            if not opening:
                return
            at, after = yield from self._read_calls(at, opening)

    def _read_beginning(self) -> Step[int]:
        """Calls without an opening at the beginning of the text; the index after them."""
        start = yield from skip_space(self._text, 0)
        try:
            form = self.form.beginning or (yield from read_beginning(self._text, start))
            reading = yield from form(self._text, start, self.tools)
        except NoCall:
            return 0
        return self._keep(reading)

    def _read_text(self, at: int, after: bool) -> Step[tuple[int, str, bool]]:
        """Text up to an opening: the index of the white space before it, the two, and whether they follow a call.

        White space around calls is no text; what may be the beginning of an opening is held back.
        """
        text, scanned, openings = self._text, at, openings_of(self.form)
        while True:
            match = openings.pattern.search(text.whole, scanned)
            held = 0 if text.final else openings.overlap(text.whole)
            end = match.start() if match else max(scanned, len(text.whole) - held)
            if text.whole[scanned:end].strip():
                content = text.whole[at:end]
                content = content.lstrip() if after else content
                kept = content if text.final and match is None else content.rstrip()
                self._parts.append(kept)
                at, after = end - (len(content) - len(kept)), False
            elif text.final and match is None and end > at and not after:
                self._parts.append(text.whole[at:end])
            scanned = end
            if match is not None or text.final:
                begin = end if after else at
                return begin, (text.whole[begin : match.end()] if match is not None else ""), after
            if at > TRIM:
                text.drop(at)
                scanned, at = scanned - at, 0
            yield

    def _read_calls(self, at: int, opening: str) -> Step[tuple[int, bool]]:
        """The calls of an opening; where there are none it is text."""
        start = at + len(opening)
        try:
            reading = yield from openings_of(self.form).forms[opening.lstrip()](self._text, start, self.tools)
        except NoCall:
            self._parts.append(opening)
            return start, False
        return self._keep(reading), True

    def _keep(self, reading: Found) -> int:
        calls, end = reading
        for call in calls if not self.single else calls[: max(0, 1 - len(self.calls))]:
            kept = Call(call.name, call.arguments) if call.id in self._ids else call
            self._ids.add(kept.id)
            self.calls.append(kept)
            self._parts.append(kept)
        return end
