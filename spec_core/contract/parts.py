"""Parts of a text: the ids and the text of what follows other tokens.

Some vocabularies write a space before a whole text and drop it again when they decode one. A part of a text has no such
space: its ids and its text are the same as in the middle of a whole text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_core.contract.target import TextStream, Tokenizer


def encode_part(tokenizer: Tokenizer, text: str, *, special: bool = False) -> list[int]:
    """Ids of a text that follows other text, without a beginning token. special: parse control tokens in it."""
    encode: Any = getattr(tokenizer, "encode_part", None)
    return tokenizer.encode(text, special=special, bos=False) if encode is None else encode(text, special=special)


def encode_after(tokenizer: Tokenizer, text: str, before: Sequence[int], *, special: bool = False) -> list[int]:
    """Ids of a text that follows the tokens ``before``, without a beginning token."""
    if has_text(tokenizer, before):
        return encode_part(tokenizer, text, special=special)
    return tokenizer.encode(text, special=special, bos=False)


def stream_after(tokenizer: Tokenizer, before: Sequence[int], exact: bool = False) -> TextStream:
    """An incremental decoder of tokens that follow the tokens ``before``. exact: all bytes of the tokens are text, also
    at the beginning, as a constraint counts them.
    """
    stream: Any = getattr(tokenizer, "stream_part", None)
    return stream() if stream is not None and (exact or has_text(tokenizer, before)) else tokenizer.stream()


def decode_after(tokenizer: Tokenizer, ids: Sequence[int], before: Sequence[int]) -> str:
    """Text of tokens that follow the tokens ``before``: decoded together, without the text of those."""
    stream = stream_after(tokenizer, before)
    return "".join([*(stream.put(token) for token in ids), stream.end()])


def has_text(tokenizer: Tokenizer, tokens: Sequence[int]) -> bool:
    """Whether any token has text. A position that is given as an embedding (-1) counts as text."""
    return any(token < 0 or tokenizer.token_bytes(token) for token in tokens)
