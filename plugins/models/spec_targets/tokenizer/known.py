"""Facts about published vocabularies that files leave out: GGUF has the names of tokens, but not how they match a text.

A vocabulary is recognised by its tokens, since fine-tuned models have other names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

PHI3 = frozenset("<|endoftext|> <|assistant|> <|system|> <|end|> <|user|>".split())
"""Control tokens of Phi-3 and 3.5, whose vocabulary is SentencePiece's."""
PHI3_EXACT = frozenset("<unk> <s> <|endoftext|>".split())
"""Control tokens of Phi-3 that leave the white space after them; the others swallow it."""
PHI4 = frozenset("<|im_start|> <|im_sep|> <|im_end|> <|dummy_0|> <|endoftext|>".split())
"""Control tokens of Phi-4, which all swallow the white space around them."""
GEMMA4_CONTROL = frozenset("<|turn> <turn|> <|tool_response>".split())
"""Tokens of Gemma 4 that are control tokens in its tokenizer.json, and text in some GGUF files."""


def flags_of(control: Collection[str], spm: bool) -> Mapping[str, Mapping[str, Any]]:
    """Matching of the tokens that are not matched as they are written. control: names of control tokens."""
    names = frozenset(control)
    if spm and names >= PHI3:
        return dict.fromkeys(names - PHI3_EXACT, {"rstrip": True})
    if not spm and names >= PHI4:
        return dict.fromkeys(names, {"lstrip": True, "rstrip": True})
    return {}
