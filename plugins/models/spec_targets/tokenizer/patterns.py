"""Division of text before merging in byte-level vocabularies, by ``tokenizer.ggml.pre``."""

from __future__ import annotations

import attrs

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
CASED_HEAD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
CASED_TAIL = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
GPT4O = (
    CASED_HEAD + CONTRACTIONS + "?|" + CASED_TAIL + CONTRACTIONS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
)
TEKKEN = CASED_HEAD + "|" + CASED_TAIL + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
DEEPSEEK3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES
)
FALCON_MARKS = r"[\p{P}\$\+<=>\^~\|`]+"
THREE_DIGITS = r"[0-9][0-9][0-9]"

PATTERNS: dict[str, tuple[str, ...]] = {}
"""By name, see ``Division``."""


@attrs.frozen
class Division:
    """How a text is divided before merging, and what else a name of ``tokenizer.ggml.pre`` implies.

    patterns: regular expressions; the first divides the text, the next every piece; text without a match stays one
    piece. whole: a piece that is itself a token is used without merging. compose: characters are composed (NFC) before.
    add_bos: bos is added where the file does not say. no_bos: bos is never added.
    """

    patterns: tuple[str, ...]
    whole: bool = False
    compose: bool = False
    add_bos: bool = False
    no_bos: bool = False


def _same(names: str, *patterns: str) -> None:
    PATTERNS.update(dict.fromkeys(names.split(), patterns))


_same("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 smaug-bpe dbrx", LLAMA3)
_same("chatglm-bpe glm4 glm5", LLAMA3)
_same("qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open", QWEN2)
_same("qwen35", QWEN35)
_same("gpt-2 phi-2 mpt olmo jais trillion modern-bert", GPT2)
_same("deepseek-v3 hunyuan-dense joyai-llm hy_v4", r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_WORDS)
_same("deepseek-coder", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_same("gpt-4o llama4 kanana2", GPT4O)
_same("tekken", TEKKEN)
_same("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", r"\p{N}", GPT2)
_same("falcon", FALCON_MARKS, GPT2, THREE_DIGITS)
_same("default", r"[\p{P}\$\+<=>\^~\|]+", GPT2.removesuffix(r"|\s+"), r"\p{N}+", THREE_DIGITS)

IGNORE_MERGES = frozenset("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 glm4 glm5 tekken".split())
"""A piece that is itself a token is used whole, without merging."""
ADD_BOS = frozenset("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 tekken chameleon".split())
COMPOSE = frozenset("qwen2 qwen35 command-r mpt olmo".split())
"""Characters are composed (NFC) before a text is divided."""
NO_BOS = frozenset("chatglm-bpe glm4 glm5".split())


def division(pre: str) -> Division:
    """The division of this name in llama.cpp. Raises KeyError."""
    return Division(PATTERNS[pre], pre in IGNORE_MERGES, pre in COMPOSE, pre in ADD_BOS, pre in NO_BOS)
