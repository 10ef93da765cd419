"""Reasoning of a model before its answer, in its text between ``<think>`` and ``</think>``."""

from __future__ import annotations

import attrs

OPENING, CLOSING = "<think>", "</think>"


@attrs.define(eq=False)
class ThoughtReader:
    """Splits a text, piece by piece, into the thinking at its beginning and the rest.

    inside: the prompt ends with the opening, so that the text begins within the thinking.
    """

    inside: bool = False
    answered: bool = False
    _rest: str = ""
    _fresh: bool = True

    def put(self, text: str) -> tuple[str, str]:
        """(thinking, answer): what was added to each of them."""
        self._rest += text
        thought = ""
        if not self.inside and not self.answered:
            self._open()
        if self.inside:
            thought = self._reasoning()
        return thought, self._answer()

    def end(self) -> tuple[str, str]:
        """Reasoning and answer that were held back."""
        rest, self._rest = self._rest, ""
        return (rest.rstrip(), "") if self.inside else ("", rest)

    def _open(self) -> None:
        start = self._rest.lstrip()
        if start.startswith(OPENING):
            self.inside, self._rest = True, start.removeprefix(OPENING)
        elif not OPENING.startswith(start):
            self.answered, self._fresh = True, False

    def _reasoning(self) -> str:
        """Reasoning up to the closing; a possible beginning of it, and white space before it, are held back."""
        text = self._rest.lstrip() if self._fresh else self._rest
        self._fresh = self._fresh and not text
        at = text.find(CLOSING)
        if at >= 0:
            self.inside, self.answered, self._fresh = False, True, True
            self._rest = text[at + len(CLOSING) :]
            return text[:at].rstrip()
        end = len(text) - next((n for n in range(len(CLOSING) - 1, 0, -1) if text.endswith(CLOSING[:n])), 0)
        thought = text[:end].rstrip()
        self._rest = text[len(thought) :]
        return thought

    def _answer(self) -> str:
        """Answer without the white space between the reasoning and it."""
        if not self.answered:
            return ""
        text = self._rest.lstrip() if self._fresh else self._rest
        self._fresh, self._rest = self._fresh and not text, ""
        return text
