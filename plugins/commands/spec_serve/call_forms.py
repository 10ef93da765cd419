"""Forms in which models write calls of functions, each read from its opening to its end.

A form says of a text that begins with its opening: these calls, ending there; no call; or more text is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import attrs

Tools = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the parameters, by function."""

OPENING, CLOSING = "<tool_call>", "</tool_call>"
FUNCTION, LISTED, PHI, PHI_END = "<function=", "[TOOL_CALLS]", "<|tool_call|>", "<|/tool_call|>"
OPENINGS = (OPENING, FUNCTION, LISTED, PHI)
HEAD = re.compile(r"<function=([^>\s]+)>\s*")
PARAMETER = re.compile(
    rf"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|</function>|{CLOSING})", re.DOTALL
)
FUNCTION_END = re.compile(rf"</function>|{CLOSING}")
NAME = re.compile(r"([\w.-]+)\s*")
PAIR = re.compile(rf"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*(?=<arg_key>|{CLOSING})", re.DOTALL)
PAIRS_END = re.compile(CLOSING)
STRUCTURE = re.compile(r'["\\{}\[\]]')


@attrs.frozen
class Call:
    """A call of a tool. arguments: JSON."""

    name: str
    arguments: str
    id: str = attrs.field(factory=lambda: f"call_{uuid4().hex[:24]}")

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@attrs.frozen
class Found:
    """Calls, and the index behind them."""

    calls: list[Call]
    end: int


class NeedMore(Exception):
    """Whether this is a call is decided by text that has not come yet."""


class NoCall(Exception):
    """The text is not a call of these tools."""


@attrs.define
class JsonEnd:
    """Finds the end of the object or list that begins at ``at``; goes on where it stopped when more text has come."""

    at: int
    depth: int = 0
    quoted: bool = False
    found: bool = False

    def find(self, text: str) -> int:
        """The index behind it. Raises NeedMore."""
        if self.found:
            return self.at
        while (match := STRUCTURE.search(text, self.at)) is not None:
            c, end = match[0], match.end()
            if c == "\\":
                end += self.quoted  # the character that it escapes
            elif c == '"':
                self.quoted = not self.quoted
            elif not self.quoted:
                self.depth += 1 if c in "{[" else -1
            if end > len(text):
                break
            self.at = end
            if self.depth <= 0 and not self.quoted:
                self.found = True
                return end
        else:
            self.at = len(text)
        raise NeedMore


@attrs.define
class Reading:
    """One opening and what follows it. searched: up to here the text has no end of a call."""

    tools: Tools
    json_end: JsonEnd | None = None
    searched: int = 0

    def read(self, text: str, final: bool) -> Found:
        """The calls at the beginning of the text. final: nothing more will come. Raises NeedMore, NoCall."""
        try:
            return self._read(text, final)
        except NeedMore:
            if final:
                raise NoCall from None
            raise

    def _read(self, text: str, final: bool) -> Found:
        if text.startswith(FUNCTION):
            return self._function(text, 0, final, closing=False)
        if text.startswith(OPENING):
            return self._read_tagged(text, final)
        for opening, closing in ((LISTED, ""), (PHI, PHI_END)):
            if text.startswith(opening):
                return self._list(text, len(opening), closing, final)
        raise NoCall

    def _read_tagged(self, text: str, final: bool) -> Found:
        """``<tool_call>`` with an object, a ``<function=...>``, or a name with ``<arg_key>`` in it."""
        at = _skip_space(text, len(OPENING))
        if text.startswith("{", at):
            end = self._end(text, at)
            return Found([object_call(text[at:end], self.tools)], _skip_closing(text, end, CLOSING, final))
        if text.startswith(FUNCTION, at):
            return self._function(text, at, final, closing=True)
        if FUNCTION.startswith(text[at:]):
            raise NeedMore
        return self._pairs(text, at)

    def _list(self, text: str, start: int, closing: str, final: bool) -> Found:
        at = _skip_space(text, start)
        if not text.startswith("[", at):
            raise NoCall
        end = self._end(text, at)
        calls = _load_json(text[at:end])
        if not calls:
            raise NoCall
        return Found([as_call(one, self.tools) for one in calls], _skip_closing(text, end, closing, final))

    def _end(self, text: str, at: int) -> int:
        self.json_end = self.json_end or JsonEnd(at)
        return self.json_end.find(text)

    def _function(self, text: str, at: int, final: bool, closing: bool) -> Found:
        """Call with parameters as text between tags; each ends before the next one or the end of the function."""
        head = HEAD.match(text, at)
        if head is None:
            raise NoCall if ">" in text[at:] else NeedMore
        properties, at, arguments = _properties(head[1], self.tools), head.end(), {}
        self._require_end(FUNCTION_END, text, at)
        while (pair := PARAMETER.match(text, at)) is not None:
            arguments[pair[1]] = value_of(pair[2], properties.get(pair[1]))
            at = pair.end()
        if text.startswith("<parameter=", at):
            raise NeedMore
        if text.startswith("</function>", at):
            at += len("</function>")
        elif not (closing and text.startswith(CLOSING, at)):
            raise NoCall
        return Found([call_of(head[1], arguments)], _skip_closing(text, at, CLOSING, final) if closing else at)

    def _pairs(self, text: str, at: int) -> Found:
        """A name, and keys and values as text between tags (GLM)."""
        name = NAME.match(text, at)
        if name is None:
            raise NoCall
        if name.end() == len(text):
            raise NeedMore
        properties, at, arguments = _properties(name[1], self.tools), name.end(), {}
        if not any(text.startswith(tag[: len(text) - at], at) for tag in ("<arg_key>", CLOSING)):
            raise NoCall
        self._require_end(PAIRS_END, text, at)
        while (pair := PAIR.match(text, at)) is not None:
            key = pair[1].strip()
            arguments[key] = value_of(pair[2], properties.get(key))
            at = pair.end()
        if text.startswith("<arg_key>", at):
            raise NeedMore
        if not text.startswith(CLOSING, at):
            raise NoCall
        return Found([call_of(name[1], arguments)], at + len(CLOSING))

    def _require_end(self, end: re.Pattern[str], text: str, at: int) -> None:
        """Raise NeedMore as long as the new text has no end: a long value is not read again with every piece."""
        start = max(at, self.searched)
        match = end.search(text, start)
        self.searched = match.end() if match else max(start, len(text) - len(CLOSING))
        if match is None:
            raise NeedMore


def _skip_space(text: str, at: int) -> int:
    """The index of the next character that is no white space. Raises NeedMore where there is none."""
    rest = text[at:].lstrip()
    if not rest:
        raise NeedMore
    return len(text) - len(rest)


def _skip_closing(text: str, at: int, closing: str, final: bool) -> int:
    """The index behind the closing, which may be missing: models forget it."""
    rest = text[at:].lstrip()
    if rest.startswith(closing):
        return len(text) - len(rest) + len(closing)
    if not closing.startswith(rest):
        return at
    if final:
        return len(text)
    raise NeedMore


def _properties(name: str, tools: Tools) -> Mapping[str, Any]:
    """Schemas of the parameters. Raises NoCall for a function that is not among the tools."""
    if name not in tools:
        raise NoCall
    properties = tools[name].get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NoCall from None


def object_call(text: str, tools: Tools) -> Call:
    """The call that an object writes. Raises NoCall."""
    return as_call(_load_json(text), tools)


def as_call(value: Any, tools: Tools) -> Call:
    """``{"name": ..., "arguments": {...}}``, or with ``parameters``. Raises NoCall."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise NoCall
    arguments = value.get("arguments", value.get("parameters", {}))
    if value["name"] not in tools or not isinstance(arguments, dict):
        raise NoCall
    return call_of(value["name"], arguments)


def call_of(name: str, arguments: Mapping[str, Any]) -> Call:
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def value_of(text: str, schema: Any) -> Any:
    """Value of a text: the text itself, unless the schema says otherwise and it is JSON."""
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    if "string" in kinds and not ("null" in kinds and text == "null"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
