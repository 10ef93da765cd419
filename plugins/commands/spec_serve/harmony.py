"""Answers of gpt-oss: messages with a channel each, between control tokens.

``<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...``. Analysis is thinking, the
message of a ``final`` channel is the answer, and a message ``to=functions.NAME`` is a call with these arguments.
"""

from __future__ import annotations

import re

import attrs

from spec_serve.calls.call import Call, Tools, create_call, parse_json
from spec_serve.calls.text import NoCall
from spec_serve.parts import AnswerPart, Mark, Piece

START, END, MESSAGE, CHANNEL = "<|start|>", "<|end|>", "<|message|>", "<|channel|>"
CONSTRAIN, RETURN, CALL = "<|constrain|>", "<|return|>", "<|call|>"
MARKS = (START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL)
RECIPIENT = re.compile(r"to=(\S+)")
HEADER_MAX = 256
"""Characters: a longer text without a message is no header, but an answer without channels."""


@attrs.define(eq=False)
class HarmonyReader:
    """Splits the text of an assistant's turn into thinking, answer and calls.

    The turn begins within a header, after ``<|start|>assistant``. tools, single: as in CallReader. told: thinking is
    a part of its own. spelled: it is in the answer, with its control tokens written out.
    """

    tools: Tools
    single: bool = False
    told: bool = True
    spelled: bool = False
    calls: list[Call] = attrs.field(factory=list)
    _header: str | None = ""
    _kind: str = ""
    _function: str = ""
    _body: str = ""
    _written: set[str] = attrs.field(factory=set)
    _fresh: bool = False

    def put(self, piece: Piece) -> list[AnswerPart | Call]:
        """Parts and calls that this piece adds."""
        if isinstance(piece, str):
            return self._text(piece)
        if piece.name == MESSAGE:
            return self._begin()
        if piece.name in (CHANNEL, CONSTRAIN) and self._header is not None:
            self._header += piece.name
            return []
        closed = self._close(piece)
        self._header = ""
        return closed

    def end(self) -> list[AnswerPart | Call]:
        """The last message, which needs no token at its end."""
        header, self._header = self._header, None
        if header and not self._written and not self.calls and CHANNEL not in header:
            return [AnswerPart("content", header)]  # an answer without channels
        return self._close(None)

    def _text(self, text: str) -> list[AnswerPart | Call]:
        if self._header is not None:
            self._header += text
            if len(self._header) <= HEADER_MAX:
                return []
            self._kind, text, self._header = "content", self._header, None
        if self._function:
            self._body += text
            return []
        return self._separate(text) if text and self._kind else []

    def _begin(self) -> list[AnswerPart | Call]:
        """The header is complete: it says what the message is."""
        header, self._header, self._body = self._header or "", None, ""
        channel = header.partition(CHANNEL)[2].split(CONSTRAIN)[0].split()
        recipient = RECIPIENT.search(header)
        name = recipient[1].split("<|")[0].removeprefix("functions.") if recipient else ""
        self._function = name if name in self.tools else ""
        self._kind, self._fresh = "reasoning" if channel[:1] == ["analysis"] else "content", True
        return self._spell(f"{header}{MESSAGE}")

    def _separate(self, text: str) -> list[AnswerPart | Call]:
        """A later message of a kind stands in a line of its own."""
        between = "\n" if self._fresh and self._kind in self._written else ""
        self._fresh = False
        self._written.add(self._kind)
        if self._kind == "content":
            return [AnswerPart("content", between + text)]
        return [*([AnswerPart("reasoning", between + text)] if self.told else []), *self._spell(text)]

    def _spell(self, text: str) -> list[AnswerPart | Call]:
        thinking = self._kind == "reasoning" and not self._function
        return [AnswerPart("content", text)] if self.spelled and thinking else []

    def _close(self, mark: Mark | None) -> list[AnswerPart | Call]:
        spelled = self._spell(mark.name) if mark is not None and mark.name == END else []
        function, body, self._function, self._body, self._kind = self._function, self._body, "", "", ""
        return self._read_call(function, body) if function else spelled

    def _read_call(self, name: str, body: str) -> list[AnswerPart | Call]:
        try:
            arguments = parse_json(body or "{}")
            call = create_call(name, arguments, self.tools) if isinstance(arguments, dict) else None
        except (ValueError, NoCall):
            call = None
        if call is None:
            self._kind = "content"
            return self._separate(body)
        if self.single and self.calls:
            return []
        self.calls.append(call)
        return [call]
