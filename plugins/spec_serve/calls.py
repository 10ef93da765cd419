"""Tool calls in a model's text, found while it comes.

Two forms are read between ``<tool_call>`` and ``</tool_call>``: an object ``{"name": ..., "arguments": {...}}``
(Hermes, Qwen 2.5 and 3, SmolLM), and ``<function=NAME><parameter=KEY>VALUE</parameter></function>`` (Qwen 3 Coder and
3.5). A text that is one object ``{"name": ..., "parameters": {...}}`` to its end is a call too (Llama 3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

import attrs

from spec_serve.fields import Tool

OPENING, CLOSING = "<tool_call>", "</tool_call>"
FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>\s*)?", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


@attrs.frozen
class Call:
    """A call of a tool. arguments: JSON."""

    name: str
    arguments: str
    id: str = attrs.field(factory=lambda: f"call_{uuid4().hex[:24]}")

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@attrs.define(eq=False)
class CallReader:
    """Splits a text, piece by piece, into what is said and the calls in it.

    tools: {name: JSON schema of its parameters}. What looks like a call and is none of these tools stays text.
    single: at most one call is read, what follows it is left out.
    """

    tools: Mapping[str, Mapping[str, Any]]
    single: bool = False
    calls: list[Call] = attrs.field(factory=list)
    _rest: str = ""
    _begun: bool = False
    _inside: bool = False
    _after: bool = False

    @classmethod
    def of(cls, tools: Iterable[Tool], single: bool = False) -> CallReader:
        return cls({t.function.name: t.function.parameters or {} for t in tools}, single)

    def put(self, text: str) -> tuple[str, list[Call]]:
        """What the text says so far beyond what was returned before, and the calls that it completed."""
        self._rest += text
        said, found = "", []
        while (piece := self._next()) is not None:
            if isinstance(piece, Call):
                found.append(piece)
            else:
                said += piece
        return said, found

    def end(self) -> tuple[str, list[Call]]:
        """The remaining text: a call whose closing is missing counts where it is whole."""
        rest, self._rest = self._rest, ""
        if self._inside:
            body = rest.removeprefix(OPENING)
        elif not self._begun and rest.lstrip().startswith("{"):
            body = rest
        else:
            return ("" if self.calls and not rest.strip() else rest), []
        call = read(body, self.tools)
        return ("", self._kept(call)) if call is not None else (rest, [])

    def _next(self) -> str | Call | None:
        """The next piece of the text or a call; None where more text is needed."""
        if self._inside:
            return self._closed()
        if not self._begun and (not (start := self._rest.lstrip()) or start[0] == "{"):
            return None  # it may be one object to its end
        return self._opened()

    def _opened(self) -> str | None:
        """Text before a call; whitespace before it, and what may be the beginning of its opening, is held back."""
        at = self._rest.find(OPENING)
        self._inside = at >= 0
        end = at if at >= 0 else len(self._rest) - _overlap(self._rest)
        text = self._rest[:end].lstrip() if self._after else self._rest[:end]
        said = text.rstrip()
        self._rest = self._rest[end:] if self._inside else text[len(said) :] + self._rest[end:]
        self._begun, self._after = self._begun or bool(said), self._after and not said
        return said if said or self._inside else None

    def _closed(self) -> str | Call | None:
        at = self._rest.find(CLOSING)
        if at < 0:
            return None
        whole, self._rest = self._rest[: at + len(CLOSING)], self._rest[at + len(CLOSING) :]
        self._inside, self._begun = False, True
        call = read(whole.removeprefix(OPENING).removesuffix(CLOSING), self.tools)
        if call is None:
            return whole
        self._after = True
        return call if self._kept(call) else ""

    def _kept(self, call: Call) -> list[Call]:
        if self.single and self.calls:
            return []
        self.calls.append(call)
        return [call]


def _overlap(text: str) -> int:
    """Length of the longest end of the text with which an opening begins."""
    return next((n for n in range(min(len(text), len(OPENING) - 1), 0, -1) if text.endswith(OPENING[:n])), 0)


def read(body: str, tools: Mapping[str, Mapping[str, Any]]) -> Call | None:
    """The call in the text between the marks, None where it is no call of these tools."""
    return _as_function(body, tools) if "<function=" in body else _as_object(body, tools)


def _as_object(body: str, tools: Mapping[str, Mapping[str, Any]]) -> Call | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("name") not in tools:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if not isinstance(arguments, dict):
        return None
    return Call(found["name"], json.dumps(arguments, ensure_ascii=False))


def _as_function(body: str, tools: Mapping[str, Mapping[str, Any]]) -> Call | None:
    match = FUNCTION.fullmatch(body)
    if match is None or match[1] not in tools:
        return None
    properties = tools[match[1]].get("properties", {})
    arguments = {key: _value(text, properties.get(key)) for key, text in PARAMETER.findall(match[2])}
    return Call(match[1], json.dumps(arguments, ensure_ascii=False))


def _value(text: str, schema: Any) -> Any:
    """What a parameter's text means: a text, unless the schema says otherwise and it is JSON."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
