"""A text that comes in pieces, and steps of reading it that never depend on how it was cut.

Each step is a generator: it yields while the answer depends on text that has not come, and goes on where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

import attrs

T = TypeVar("T")
Step: TypeAlias = Generator[None, None, T]
"""A step of reading whose result is ``T``."""
NO_SPACE = re.compile(r"\S")
NAME = re.compile(r"[\w.-]{0,128}")
"""The longest beginning of a text that may be a function's name."""


class NoCall(Exception):
    """The text is not a call of these tools."""


@attrs.define(eq=False)
class Text:
    """The text so far.

    final: nothing more will come. seen: by what was searched, a start and an end between which there is none.
    ends: closings that are known to be ends, by what was searched.
    """

    whole: str = ""
    final: bool = False
    seen: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    ends: dict[str, int] = attrs.field(factory=dict)

    def append(self, piece: str) -> None:
        """Add a piece, without a copy of the text before it."""
        whole, self.whole = self.whole, ""
        whole += piece
        self.whole = whole

    def drop(self, count: int) -> None:
        """Forget the first characters of the text."""
        self.whole = self.whole[count:]
        self.seen, self.ends = {}, {}


def read_char(text: Text, at: int) -> Step[str]:
    """The character there; none at the end of the text."""
    while at >= len(text.whole):
        if text.final:
            return ""
        yield
    return text.whole[at]


def has_word(text: Text, at: int, word: str) -> Step[bool]:
    """Whether the word stands there."""
    while True:
        part = text.whole[at : at + len(word)]
        if part == word:
            return True
        if text.final or not word.startswith(part):
            return False
        yield


def choose_word(text: Text, at: int, words: Sequence[str]) -> Step[str]:
    """The first of the words that stands there; none of them is an empty text."""
    for word in words:
        if (yield from has_word(text, at, word)):
            return word
    return ""


def skip_space(text: Text, at: int) -> Step[int]:
    """The index of the next character that is no white space, or the end of the text."""
    while True:
        match = NO_SPACE.search(text.whole, at)
        if match is not None:
            return match.start()
        at = max(at, len(text.whole))
        if text.final:
            return at
        yield


def find_word(text: Text, at: int, word: str) -> Step[int]:
    """The index of the word's next place; -1 where there is none. A part that was searched is not searched again."""
    begin, end = text.seen.get(word, (at, at))
    begin, end = (begin, end) if begin <= at <= end else (at, at)
    while True:
        place = text.whole.find(word, end)
        end = place if place >= 0 else max(end, len(text.whole) - len(word) + 1)
        text.seen[word] = begin, end
        if place >= 0:
            return place
        if text.final:
            text.seen[word] = begin, len(text.whole) + 1
            return -1
        yield


def find_end(text: Text, at: int, closing: str, following: Sequence[str]) -> Step[int]:
    """The index of the next closing after which, and white space, one of these words or the end of the text follows.

    -1 where there is none.
    """
    key = "\0".join((closing, *following))
    begin, end = text.seen.get(key, (at, at))
    begin, end = (begin, end) if begin <= at <= end else (at, at)
    while (place := (yield from find_word(text, end, closing))) >= 0:
        text.seen[key] = begin, place
        if text.ends.get(key) == place:
            return place
        after = yield from skip_space(text, place + len(closing))
        if after >= len(text.whole) or (yield from choose_word(text, after, following)):
            text.ends[key] = place
            return place
        end = place + len(closing)
    text.seen[key] = begin, len(text.whole) + 1
    return -1


def skip_closing(text: Text, at: int, closing: str) -> Step[int]:
    """The index after the closing, which may be missing, or cut at the end of the text: models forget it."""
    if not closing:
        return at
    start = yield from skip_space(text, at)
    if (yield from has_word(text, start, closing)):
        return start + len(closing)
    return len(text.whole) if text.final and closing.startswith(text.whole[start:]) else at


def read_name(text: Text, at: int) -> Step[str]:
    """The function's name there. Raises NoCall where there is none."""
    while True:
        match = NAME.match(text.whole, at)
        name = match[0] if match is not None else ""
        if at + len(name) < len(text.whole) or text.final or len(name) >= 128:
            break
        yield
    if not name:
        raise NoCall
    return name
