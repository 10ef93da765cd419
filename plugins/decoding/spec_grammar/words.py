"""A target's vocabulary as llguidance reads it, byte tokens and control tokens included."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from spec_core import Target, Tokenizer, UsageError
from spec_core.toolkit import encode_part

_made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def library() -> ModuleType:
    """llguidance. Raises UsageError where it is not installed."""
    try:
        import llguidance
    except ImportError as error:
        raise UsageError(
            "structured output needs llguidance, which is not installed", hint="pip install 'spec-core[grammar]'"
        ) from error
    return llguidance


@attrs.define(eq=False)
class Words:
    """A tokenizer as llguidance reads it. tokens: bytes by id; a control token has a name that no text has."""

    tokens: Sequence[bytes]
    special_token_ids: list[int]
    eos_token_id: int
    bos_token_id: int | None
    tokenizer: Tokenizer

    def __call__(self, text: bytes) -> list[int]:
        """Ids of a part of a text, which have exactly its bytes."""
        ids = encode_part(self.tokenizer, text.decode("utf-8", "ignore"))
        exact = b"".join(map(self.tokenizer.token_bytes, ids)) == text
        return ids if exact else self._longest(text)

    def _longest(self, text: bytes) -> list[int]:
        """The longest token at every place, for a tokenizer that changes characters before it divides a text."""
        ids, at = [], 0
        while at < len(text):
            ends = range(min(len(text), at + self._size), at, -1)
            end = next((end for end in ends if text[at:end] in self._ids), 0)
            if not end:
                break
            ids.append(self._ids[text[at:end]])
            at = end
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        special = set(self.special_token_ids)
        return {text: i for i, text in reversed([*enumerate(self.tokens)]) if i not in special}

    @cached_property
    def _size(self) -> int:
        return max(map(len, self._ids))


def words_of(target: Target) -> Any:
    """The LLTokenizer of a target, made once. Raises UsageError for a target without tokenizer or end token."""
    if target.tokenizer is None:
        raise UsageError("structured output needs a tokenizer, this target has none", hint="use a target with one")
    if not target.info.eog:
        raise UsageError(
            "structured output needs a model with an end-of-text token, this one has none",
            hint="use a model whose file names one",
        )
    if target.tokenizer not in _made:
        vocabulary = vocabulary_of(target)
        llguidance = library()
        _made[target.tokenizer] = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens), eos_token=sorted(target.info.eog)
        )
    return _made[target.tokenizer]


def vocabulary_of(target: Target) -> Words:
    """The vocabulary of a target that has a tokenizer."""
    tokenizer, eog = target.tokenizer, sorted(target.info.eog)
    assert tokenizer is not None
    words = [tokenizer.token_bytes(i) if i < tokenizer.vocab_size else b"" for i in range(target.info.vocab)]
    special = sorted({i for i, text in enumerate(words) if not text} | set(eog))
    tokens = list(words)
    for i in special:
        tokens[i] = b"<%d>" % i
    return Words(tokens, special, eog[0], tokenizer.bos, tokenizer)
