"""The process in which a grammar is compiled for the first time. Run as a program, by its path.

It imports llguidance and nothing large. A message is a pickle of (key, vocabulary or None, grammar, limits); the answer
is JSON: ``{"known": false}`` asks for the vocabulary, otherwise ``error`` and the ``seconds`` of CPU that it took.
"""

from __future__ import annotations

import ctypes
import json
import pickle
from time import process_time
from types import SimpleNamespace
from typing import Any

import llguidance

from spec_core.toolkit import answer_messages

TOKENIZERS_MAX = 4
tokenizers: dict[str, Any] = {}


def answer(message: bytes) -> bytes:
    """Compile a grammar and compute its first mask."""
    key, vocabulary, grammar, limits = pickle.loads(message)
    if vocabulary is not None:
        _keep(key, *vocabulary)
    if key not in tokenizers:
        return json.dumps({"known": False}).encode()
    begun = process_time()
    error = _error(tokenizers[key], grammar, limits)
    return json.dumps({"known": True, "error": error, "seconds": process_time() - begun}).encode()


def _error(tokenizer: Any, grammar: str, limits: dict[str, Any]) -> str:
    """Error of the grammar; empty if it can be used."""
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=llguidance.LLParserLimits(**limits))
    if not matcher.is_error():
        mask = (ctypes.c_uint32 * -(-tokenizer.vocab_size // 32))()
        matcher.unsafe_compute_mask_ptr(ctypes.addressof(mask), ctypes.sizeof(mask))
    return str(matcher.get_error()) if matcher.is_error() else ""


def _keep(key: str, tokens: list[bytes], special: list[int], ends: list[int], bos: int | None) -> None:
    while len(tokenizers) >= TOKENIZERS_MAX:
        del tokenizers[next(iter(tokenizers))]
    control = set(special)
    ids = {text: i for i, text in enumerate(tokens) if i not in control}
    vocabulary = _Vocabulary(
        tokens=tokens, special_token_ids=special, eos_token_id=ends[0], bos_token_id=bos, ids=ids,
        longest=max(map(len, ids), default=0),
    )  # fmt: skip
    tokenizers[key] = llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(vocabulary), n_vocab=len(tokens), eos_token=ends
    )


class _Vocabulary(SimpleNamespace):
    """A tokenizer that takes the longest token at every place. Another division of a text is as good for a trial."""

    def __call__(self, text: str | bytes) -> list[int]:
        rest = text.encode() if isinstance(text, str) else text
        ids = []
        while rest:
            end = next((end for end in range(min(len(rest), self.longest), 0, -1) if rest[:end] in self.ids), 0)
            if not end:
                break
            ids.append(self.ids[rest[:end]])
            rest = rest[end:]
        return ids


if __name__ == "__main__":
    answer_messages(answer)
