"""Names of control tokens in the texts of a conversation: there they are text, and only the template's are tokens.

Each name in a user's text is put between two marks before the template is rendered, so that both kinds can be told
apart in the prompt. The marks are random digits, which templates pass on as they are and a stranger cannot guess. As
transformers' ``sanitize_control_tokens`` does; a text without names of control tokens is not touched.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import attrs

DIGITS = 18
"""Digits of a mark."""
LONG = 64
"""Longer names are alternatives of their own."""


@attrs.frozen
class Piece:
    """A part of a prompt. control: with the template's control tokens, which its first token is unless it is the
    beginning; else text alone.
    """

    text: str
    control: bool


@attrs.define
class ControlNames:
    """The names of a vocabulary's control tokens. before, after: names that swallow the white space there."""

    names: frozenset[str]
    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Any of the names, the longest first."""
        return re.compile(any_of(self.names))

    def mark(self, value: Any) -> tuple[Any, Marks | None]:
        """The value with marks around every name in its texts, and the marks; None if there is no name."""
        if not self.names or not self._occurs(value):
            return value, None
        marks = Marks(*(f"{secrets.randbelow(10**DIGITS):0{DIGITS}}" for _ in range(2)))
        return self._marked_value(value, marks), marks

    def _occurs(self, value: Any) -> bool:
        return any(self.pattern.search(text) for text in texts_of(value))

    def _marked_value(self, value: Any, marks: Marks) -> Any:
        again = lambda inner: self._marked_value(inner, marks)
        if isinstance(value, str):
            return self.pattern.sub(f"{marks.begin}\\g<0>{marks.end}", value)
        if isinstance(value, dict):
            return {again(key): again(item) for key, item in value.items()}
        return type(value)(map(again, value)) if isinstance(value, (list, tuple)) else value

    def pieces(self, prompt: str, marks: Marks) -> Iterator[Piece]:
        """The parts of a prompt: each text with a marked name, up to the template's next control token, is one."""
        control = ""
        last = ""
        for text, name, marked in self._runs(prompt, marks):
            if marked:
                head, body, tail = split_spaces(text, last in self.after, name in self.before)
                yield Piece(control + head, True)
                yield Piece(body, False)
                control = tail + name
            else:
                control += text + name
            last = name
        yield Piece(control, True)

    def _runs(self, prompt: str, marks: Marks) -> Iterator[tuple[str, str, bool]]:
        """Texts without marks, the control token after each, and whether there was a mark."""
        name, begin, end = self.pattern.pattern, marks.begin, marks.end
        splitter = re.compile(f"{begin}(?:{name}){end}|{begin}|{end}|(?P<name>{name})")
        parts: list[str] = []
        marked, at = False, 0
        for match in splitter.finditer(prompt):
            parts.append(prompt[at : match.start()])
            at = match.end()
            if name := match["name"]:
                yield "".join(parts), name, marked
                parts, marked = [], False
            else:
                parts.append(match[0].removeprefix(marks.begin).removesuffix(marks.end))
                marked = True
        yield "".join([*parts, prompt[at:]]), "", marked


@attrs.frozen
class Marks:
    begin: str
    end: str


def texts_of(value: Any) -> Iterator[str]:
    """All texts in a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from texts_of(pair)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_of(item)


def split_spaces(text: str, after: bool, before: bool) -> tuple[str, str, str]:
    """A text and the white space around it that belongs to the tokens there. after, before: whether they swallow it."""
    body = text.lstrip() if after else text
    head = text[: len(text) - len(body)]
    kept = body.rstrip() if before else body
    return head, kept, body[len(kept) :]


def any_of(names: Iterable[str]) -> str:
    """A regular expression of any of these texts, in time that does not grow with their number."""
    tree: dict[str, Any] = {}
    long = []
    for name in names:
        if len(name) > LONG:
            long.append(re.escape(name))
            continue
        node = tree
        for character in name:
            node = node.setdefault(character, {})
        node[""] = {}
    return "|".join([*sorted(long, key=len, reverse=True), *([_branches(tree)] if tree else [])])


def _branches(node: dict[str, Any]) -> str:
    parts = [re.escape(character) + _branches(inner) for character, inner in node.items() if character]
    if not parts:
        return ""
    return f"(?:{'|'.join(parts)})" + ("?" if "" in node else "")
