"""Tokens to text incrementally, never splitting a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class ByteStream:
    """Incremental UTF-8 over the bytes of tokens; invalid bytes become replacement characters."""

    def __init__(self, bytes_of: Callable[[int], bytes], strip_space: bool = False) -> None:
        self.bytes_of = bytes_of
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.strip_space = strip_space

    def put(self, token: int) -> str:
        """The text that this token completes."""
        raw = self.bytes_of(token)
        if self.strip_space and raw:
            raw, self.strip_space = raw.removeprefix(b" "), False
        return self.decoder.decode(raw)

    def end(self) -> str:
        """The bytes held back, as replacement characters."""
        return self.decoder.decode(b"", final=True)
