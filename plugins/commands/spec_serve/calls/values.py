"""Values in a text as JSON, Python or Gemma write them, read from their first character to their last.

A text that cannot be a value is given up at its first wrong character, and nothing here is recursive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

from spec_serve.calls.call import DEPTH_MAX, parse_float
from spec_serve.calls.text import NoCall, Step, Text, find_word, has_word, read_char, skip_space

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
WORD_MAX = 512
"""Characters of a value without quotes."""
ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", **{c: c for c in "\\'\"/"}}


@attrs.frozen
class Dialect:
    """A way of writing values.

    quotes: around a text; escapes: a text has them, with backslashes. words: values that are words. word: characters of
    a value without quotes. free: such a value may be any text. bare: so may a key. brackets: of lists and tuples.
    """

    quotes: tuple[str, ...]
    words: Mapping[str, Any]
    word: re.Pattern[str]
    escapes: bool = True
    free: bool = False
    brackets: Mapping[str, str] = {"[": "]"}


JSON_WORDS = {"true": True, "false": False, "null": None}
PYTHON_WORDS = {**JSON_WORDS, "True": True, "False": False, "None": None}
PLAIN = re.compile(r"[-+.\w]{0,513}")
FREE = re.compile(r"[^,:{}\[\]<>|\"]{0,513}")
JSON = Dialect(('"',), JSON_WORDS, PLAIN)
PYTHON = Dialect(('"', "'"), PYTHON_WORDS, PLAIN, brackets={"[": "]", "(": ")"})
GEMMA = Dialect(('<|"|>', "<escape>", '"'), PYTHON_WORDS, FREE, free=True)


@attrs.define
class Level:
    """A list or an object that is being read, and the key of the value to come."""

    held: list[Any] | dict[str, Any]
    closing: str
    key: str = ""

    def add(self, value: Any) -> None:
        if isinstance(self.held, dict):
            self.held[self.key] = value
        else:
            self.held.append(value)


def read_value(text: Text, at: int, dialect: Dialect) -> Step[tuple[Any, int]]:
    """The value there, and the index after it. Raises NoCall."""
    levels: list[Level] = []
    while True:
        at = yield from skip_space(text, at)
        c = yield from read_char(text, at)
        if c == "{" or c in dialect.brackets:
            if len(levels) >= DEPTH_MAX:
                raise NoCall
            level = Level({}, "}") if c == "{" else Level([], dialect.brackets[c])
            at = yield from skip_space(text, at + 1)
            if (yield from read_char(text, at)) != level.closing:
                levels.append(level)
                at = yield from _read_key(text, at, level, dialect)
                continue
            value, at = level.held, at + 1
        else:
            value, at = yield from _read_scalar(text, at, dialect)
        while levels:
            (level := levels[-1]).add(value)
            at = yield from skip_space(text, at)
            c = yield from read_char(text, at)
            if c == ",":
                at = yield from _read_key(text, at + 1, level, dialect)
                break
            if c != level.closing:
                raise NoCall
            value, at = levels.pop().held, at + 1
        else:
            return value, at


def _read_key(text: Text, at: int, level: Level, dialect: Dialect) -> Step[int]:
    """Read the key of the next value of an object; a list has none."""
    if isinstance(level.held, list):
        return at
    at = yield from skip_space(text, at)
    level.key, at = yield from read_key(text, at, dialect)
    at = yield from skip_space(text, at)
    if (yield from read_char(text, at)) != ":":
        raise NoCall
    return at + 1


def read_key(text: Text, at: int, dialect: Dialect) -> Step[tuple[str, int]]:
    """The key there, in quotes, or without them where the dialect allows that."""
    for quote in dialect.quotes:
        if (yield from has_word(text, at, quote)):
            return (yield from _read_quoted(text, at, quote, dialect))
    if not dialect.free:
        raise NoCall
    key, at = yield from _read_word(text, at, dialect)
    return key, at


def _read_scalar(text: Text, at: int, dialect: Dialect) -> Step[tuple[Any, int]]:
    for quote in dialect.quotes:
        if (yield from has_word(text, at, quote)):
            return (yield from _read_quoted(text, at, quote, dialect))
    word, at = yield from _read_word(text, at, dialect)
    if word in dialect.words:
        return dialect.words[word], at
    if (match := NUMBER.fullmatch(word)) is not None:
        try:
            return (parse_float(word) if match[1] or match[2] else int(word)), at
        except ValueError:
            raise NoCall from None
    if not dialect.free or not word:
        raise NoCall
    return word, at


def _read_word(text: Text, at: int, dialect: Dialect) -> Step[tuple[str, int]]:
    while True:
        match = dialect.word.match(text.whole, at)
        word = match[0] if match is not None else ""
        if len(word) > WORD_MAX:
            raise NoCall
        if at + len(word) < len(text.whole) or text.final:
            return word.rstrip(), at + len(word)
        yield


def _read_quoted(text: Text, at: int, quote: str, dialect: Dialect) -> Step[tuple[str, int]]:
    """A text between quotes. Raises NoCall for one without end."""
    start = at = at + len(quote)
    if len(quote) > 1:
        end = yield from find_word(text, start, quote)
        if end < 0:
            raise NoCall
        return text.whole[start:end], end + len(quote)
    special = SPECIAL[quote]
    while True:
        match = special.search(text.whole, at)
        if match is None:
            at = max(at, len(text.whole))
        elif match[0] == quote:
            return _unescape(text.whole[start : match.start()], quote), match.end()
        elif match.end() < len(text.whole):
            at = match.end() + 1
            continue
        else:
            at = match.start()
        if text.final:
            raise NoCall
        yield


SPECIAL = {quote: re.compile(f"[{quote}\\\\]") for quote in ('"', "'")}


def _unescape(written: str, quote: str) -> str:
    if "\\" not in written:
        return written
    if quote == '"':
        try:
            return str(json.loads(f'"{written}"', strict=False))
        except ValueError:
            pass  # escapes of Python
    return ESCAPED.sub(_unescape_one, written)


def _unescape_one(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "ux" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return ESCAPES.get(escape, match[0])
