"""pico with control tokens of other families, which say what a test wants them to say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import attrs
from spec_targets.tokenizer.stream import ByteStream

from tests.support.scripted import script_target

FIRST = 3000
"""The token that stands for the first name; tokens from here on are rare pieces of text in pico."""


class Marked:
    """A tokenizer with some of its tokens as control tokens."""

    def __init__(self, tokenizer: Any, names: Sequence[str], template: str | None = None) -> None:
        self.inner = copy(tokenizer)
        self.inner.chat_template = template
        self.marks = {name: FIRST + i for i, name in enumerate(names)}
        self.split = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def encode(self, text: str, *, special: bool = False, bos: bool = True) -> list[int]:
        if not special or self.split is None:
            return self.inner.encode(text, special=special, bos=bos)
        parts = [part for part in self.split.split(text) if part]
        return [i for part in parts for i in self._ids(part)]

    def encode_part(self, text: str, *, special: bool = False) -> list[int]:
        return self.encode(text, special=special, bos=False)

    def _ids(self, part: str) -> list[int]:
        return [self.marks[part]] if part in self.marks else self.inner.encode(part, special=True, bos=False)

    def token_bytes(self, token: int) -> bytes:
        return b"" if token in self.marks.values() else self.inner.token_bytes(token)

    def stream(self) -> ByteStream:
        return ByteStream(self.token_bytes)

    stream_part = stream

    def decode(self, ids: Iterable[int]) -> str:
        stream = self.stream()
        return "".join([*map(stream.put, ids), stream.end()])

    def encode_chat(self, messages: Any, **keywords: Any) -> list[int]:
        return self.encode(self.inner.render(messages, **keywords), special=True, bos=False)


def speaking(text: str, names: Sequence[str] = (), template: str | None = None, ends: Sequence[str] = ()) -> Any:
    """pico that says a text in which the names are control tokens. ends: names that end a text."""
    target = script_target("")
    words = Marked(target.tokenizer, names, template or target.tokenizer.chat_template)
    eog = target.info.eog | {words.marks[name] for name in ends}
    target.script = [*words.encode(text, special=True, bos=False), min(target.info.eog)]
    target.tokenizer, target.info = words, attrs.evolve(target.info, eog=eog)
    return target
