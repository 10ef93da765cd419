"""Tokenizers of every family and form of file against transformers' tokenizer of the family, on random texts."""

from __future__ import annotations

import json
import random
import struct
from functools import cache
from pathlib import Path

import pytest
from spec_targets.formats.gguf import open_gguf
from spec_targets.tokenizer.gguf_vocabulary import CONTROL, NORMAL, USER, from_gguf
from spec_targets.tokenizer.hf import from_hf
from spec_targets.tokenizer.known import flags_of
from spec_targets.tokenizer.sentencepiece import from_sentencepiece

from spec_core import UsageError
from tests.support.golden import GOLDEN, golden

FORMS = {
    "gguf": lambda folder: from_gguf(open_gguf(folder / "model-f32.gguf").metadata),
    "tokenizer.json": lambda folder: from_hf(folder / "hf"),
    "tokenizer.model": lambda folder: from_sentencepiece(folder / "hf"),
}
FAMILIES = (
    "gemma2 gemma3 gemma4-e glm4moe gpt-oss kimi-linear lfm2 llama mistral phi3 phi3-longrope "
    "qwen2 qwen3 qwen35 qwen3next "
    "deepseek3 falcon-h1 glm4moelite glm5_next granite-hybrid laguna lfm3 minimax-m2 muse_glimmer nemotron-h "
    "olmo-hybrid"
).split()
SENTENCEPIECE = ("gemma2", "gemma3", "mistral", "phi3", "phi3-longrope")
WITHOUT_GGUF = ("lfm3", "olmo-hybrid")
CASES = [
    (family, form)
    for family in FAMILIES
    for form in FORMS
    if (form != "tokenizer.model" or family in SENTENCEPIECE) and (form != "gguf" or family not in WITHOUT_GGUF)
]
WORDS = [
    "The", " capital", "  of", "\n", "\n\n", "\r\n", "\t", " ", "   ", "a", "b c", "é", "e\u0301", "Å", "A\u030a",
    "か\u3099", "ﬁ", "日本", "각", "\u1100\u1161\u11a8", "🙂", "▁", "▁▁", "{", '"', "x=1", "123", "don't", "<0x41>",
]  # fmt: skip
UNLIKE = {("phi3", "gguf"): "</s>", ("phi3-longrope", "gguf"): "</s>"}
"""A token that matches in another way in the published vocabulary, from which the golden one differs."""


@cache
def transformers(family: str):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(golden(family) / "hf" / "tokenizer.json"))


@pytest.mark.parametrize("family, form", CASES)
def test_ids_are_those_of_transformers_on_random_texts(family, form):
    """With decomposed characters, runs of spaces, and white space around control tokens."""
    tokenizer, reference = FORMS[form](golden(family)), transformers(family)
    names = [token.content for token in reference.added_tokens_decoder.values()]
    words = [*WORDS, *[name for name in names if name != UNLIKE.get((family, form))] * 3]
    rng = random.Random(0)
    for _ in range(2000):
        text = "".join(rng.choices(words, k=rng.randrange(1, 10)))
        for special in (True, False):
            expected = reference.encode(text, add_special_tokens=False, split_special_tokens=not special)
            assert tokenizer.encode(text, bos=False, special=special) == expected, text


def test_special_tokens_of_phi_swallow_white_space_where_the_file_does_not_say_it():
    phi3, phi4 = (
        "<unk> <s> </s> <|endoftext|> <|assistant|> <|system|> <|end|> <|user|>".split(),
        ("<|im_start|> <|im_sep|> <|im_end|> <|dummy_0|> <|endoftext|>".split()),
    )

    assert flags_of(phi3, spm=True) == dict.fromkeys(
        ("</s>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"), {"rstrip": True}
    )
    assert flags_of(phi4, spm=False) == dict.fromkeys(phi4, {"lstrip": True, "rstrip": True})
    assert flags_of(phi3, spm=False) == flags_of(phi3[4:], spm=True) == flags_of(["<|im_start|>"], spm=False) == {}


# tokenizer.model alone


def field(number: int, value: bytes | int | float) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    head = b""
    while value > 127:
        head, value = head + bytes([value & 127 | 128]), value >> 7
    return head + bytes([value])


PIECES = [
    ("<unk>", 0.0, 2), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), *((f"<0x{i:02X}>", 0.0, 6) for i in range(256)),
    ("\n\n", 0.0, USER), ("<x>", 0.0, USER), ("▁▁", 0.0, USER), ("▁▁▁", 0.0, USER), ("▁▁▁▁", 0.0, USER),
    *((text, -1.0 - i, NORMAL) for i, text in enumerate(("▁a", "ab", "▁ab", "a", "b", "▁", "\n", "<", ">", "x"))),
]  # fmt: skip


def write_model(path: Path, prefix: bool) -> None:
    """A model of BPE with bytes for unknown characters, and user-defined pieces, as sentencepiece writes it."""
    pieces = [field(1, text.encode()) + field(2, score) + field(3, kind) for text, score, kind in PIECES]
    raw = b"".join(field(1, piece) for piece in pieces)
    raw += field(2, field(3, 2) + field(35, 1)) + field(3, field(3, int(prefix)) + field(4, 0))
    path.write_bytes(raw)


@pytest.mark.parametrize("prefix", [False, True], ids=["gemma", "llama"])
def test_user_defined_pieces_of_a_model_alone_are_those_of_transformers(prefix, tmp_path):
    """Runs of spaces are pieces too: they are merged; in a text they are matched as they are written."""
    from tokenizers import AddedToken, normalizers, pre_tokenizers
    from transformers import GemmaTokenizer, LlamaTokenizer
    from transformers.convert_slow_tokenizer import generate_merges

    write_model(tmp_path / "tokenizer.model", prefix)
    tokenizer = from_sentencepiece(tmp_path)
    vocab = {text: i for i, (text, _, _) in enumerate(PIECES)}
    scores = {text: score for text, score, _ in PIECES}
    kind = LlamaTokenizer if prefix else GemmaTokenizer
    reference = kind(vocab=vocab, merges=generate_merges(vocab, scores))
    if prefix:  # as LlamaConverter makes it of a model file
        spaces = normalizers.Replace(" ", "▁")
        reference.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
        reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])
    reference.add_tokens([AddedToken(text, normalized=False, special=False) for text, _, t in PIECES if t == USER])
    rng = random.Random(1)
    for _ in range(500):
        text = "".join(rng.choices(["a", "b", "ab", " ", "  ", "\n", "<x>", "é", "▁", " a"], k=rng.randrange(1, 9)))
        assert tokenizer.encode(text, bos=False) == reference.encode(text, add_special_tokens=False), text


@pytest.mark.parametrize("older", [False, True], ids=["tokenizer_config.json", "added_tokens.json"])
def test_tokens_beside_a_model_alone_are_read_with_their_kinds(older, tmp_path):
    write_model(tmp_path / "tokenizer.model", True)
    count = len(PIECES)
    if older:
        (tmp_path / "added_tokens.json").write_text(json.dumps({"<|end|>": count, "<think>": count + 1}))
        (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|end|>"}}))
    else:
        tokens = {count: {"content": "<|end|>", "special": True, "rstrip": True}, count + 1: {"content": "<think>"}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))
    tokenizer = from_sentencepiece(tmp_path)

    assert tokenizer.encode("<|end|>", special=True, bos=False) == [count]
    assert len(tokenizer.encode("<|end|>", bos=False)) > 1
    assert tokenizer.encode("<think>", bos=False) == [count + 1]
    assert (tokenizer.token_bytes(count), tokenizer.token_bytes(count + 1)) == (b"", b"<think>")
    assert (tokenizer.encode("<|end|>\n", special=True, bos=False) == [count]) is not older


@pytest.mark.parametrize("tokens", [{"<a>": -1}, {"<a>": "x"}, {"<a>": 1 << 40}, {"<a>": None}, {"<a>": 1.5}])
def test_damaged_added_tokens_end_in_a_message(tokens, tmp_path):
    write_model(tmp_path / "tokenizer.model", True)
    (tmp_path / "added_tokens.json").write_text(json.dumps(tokens))

    with pytest.raises(UsageError, match=r"added_tokens.json"):
        from_sentencepiece(tmp_path)


# padding


def test_padding_is_not_part_of_a_vocabulary(tmp_path):
    """Neither the tokens that a GGUF file pads with, nor gaps at the end; another token is."""
    folder = golden("qwen2")
    metadata = dict(open_gguf(folder / "model-f32.gguf").metadata)
    texts, kinds = list(metadata["tokenizer.ggml.tokens"]), list(metadata["tokenizer.ggml.token_type"])
    tokenizers = {}
    for name, more in {"none": [], "padded": [f"[PAD{len(texts) + i}]" for i in range(7)], "other": ["<new>"]}.items():
        metadata["tokenizer.ggml.tokens"] = [*texts, *more]
        metadata["tokenizer.ggml.token_type"] = [*kinds, *[5] * len(more)]
        tokenizers[name] = from_gguf(metadata).identity

    assert tokenizers["none"] == tokenizers["padded"] == from_hf(folder / "hf").identity != tokenizers["other"]


def test_golden_families_are_all_tested():
    names = {path.parent.parent.name for path in GOLDEN.glob("*/hf/tokenizer.json")}
    twins = {"gemma4-k", "gemma4-moe", "gpt-oss-notruncate", "granite-hybrid-dense", "lfm2moe", "nemotron-h-moe"}
    twins |= {"qwen35moe", "qwen3moe"}
    assert {n for n in names if not n.startswith("vision-")} <= {*FAMILIES, *twins}
