"""Tokenizers against independent ones, streaming text, and hostile chat templates."""

from __future__ import annotations

import gzip
import json
from functools import cache
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_targets.formats.gguf import open_gguf
from spec_targets.runtime import hf_target as hf
from spec_targets.tokenizer import gguf_vocabulary as tokenizers_of_gguf
from spec_targets.tokenizer.gguf_vocabulary import from_gguf
from spec_targets.tokenizer.hf import from_hf
from spec_targets.tokenizer.patterns import PATTERNS, Division, division
from spec_targets.tokenizer.sentencepiece import from_sentencepiece

from spec_core import UsageError, load
from tests.support.golden import golden
from tests.support.small_models import tiny_gguf

FOLDERS = ["llama", "qwen2", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "glm4moe", "lfm2", "lfm2moe"]
SENTENCEPIECE = ["mistral", "phi3", "phi3-longrope", "gemma2", "gemma3"]
"""Their directories also have ``tokenizer.model``."""
GEMMA4 = ["gemma4-e", "gemma4-k", "gemma4-moe"]
VOCABULARIES = ["qwen2", "llama-bpe", "llama-spm"]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_real_vocabularies_give_the_ids_of_llama_cpp(name, tmp_path):
    """BPE with its pre-tokenizer and SentencePiece by scores, every golden text."""
    packed = golden("tokenizer") / f"ggml-vocab-{name}.gguf.gz"
    path = tmp_path / "vocab.gguf"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    tokenizer = from_gguf(open_gguf(path).metadata)
    cases = json.loads((golden("tokenizer") / f"{name}.json").read_text())["cases"]

    assert len(cases) > 40
    for case in cases:
        assert case["ids"] == tokenizer.encode(case["text"], bos=False), case["text"]


SOURCES = {
    "gguf": lambda folder: from_gguf(open_gguf(folder / "model-f32.gguf").metadata),
    "tokenizer.json": lambda folder: from_hf(folder / "hf"),
    "tokenizer.model": lambda folder: from_sentencepiece(folder / "hf"),
}
OF_FOLDERS = [
    (name, source) for name in [*FOLDERS, *SENTENCEPIECE, *GEMMA4, "gpt-oss"] for source in ("gguf", "tokenizer.json")
]


@pytest.mark.parametrize("name, source", [*OF_FOLDERS, *((name, "tokenizer.model") for name in SENTENCEPIECE)])
def test_the_models_own_tokenizer_gives_the_golden_ids(name, source):
    folder = golden(name)
    tokenizer = SOURCES[source](folder)
    checks = json.loads((folder / "golden.json").read_text())["tokenizer_checks"]

    assert checks
    for check in checks:
        assert check["ids"] == tokenizer.encode(check["text"], bos=False), check["text"]
        assert tokenizer.decode(check["ids"]) == (
            check["text"].replace("▁", " ") if name in SENTENCEPIECE + GEMMA4 else check["text"]
        )


def test_a_sentencepiece_model_alone_has_the_ids_of_the_whole_directory(tmp_path):
    folder = golden("gemma3") / "hf"
    for name in ("tokenizer.model", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    alone, whole = hf.tokenizer(tmp_path), hf.tokenizer(folder)

    assert (alone.bos, alone.eos, alone.add_bos, alone.eog) == (whole.bos, whole.eos, whole.add_bos, whole.eog)
    assert alone.render([{"role": "user", "content": "a"}]) == whole.render([{"role": "user", "content": "a"}])
    assert alone.encode("<start_of_turn>user\nHi", special=True) == whole.encode(
        "<start_of_turn>user\nHi", special=True
    )


TYPE = b"\x18\x02"
"""``model_type`` of the trainer: BPE."""


@pytest.mark.parametrize(
    "new, message",
    [(b"\x18\x01", "is a unigram model, which is not supported"), (b"\x1b\x02", "is not a SentencePiece model")],
)
def test_other_sentencepiece_models_are_refused(tmp_path, new, message):
    raw = (golden("gemma3") / "hf" / "tokenizer.model").read_bytes()
    at = raw.rindex(TYPE)
    (tmp_path / "tokenizer.model").write_bytes(raw[:at] + new + raw[at + 2 :])

    with pytest.raises(UsageError, match=message):
        hf.tokenizer(tmp_path)


def test_damaged_sentencepiece_models_end_in_a_message(tmp_path):
    """Every 16th byte changed, and the file cut there."""
    raw = (golden("gemma3") / "hf" / "tokenizer.model").read_bytes()
    refused = 0
    for at in range(0, len(raw), 16):
        for changed in (raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :], raw[:at]):
            (tmp_path / "tokenizer.model").write_bytes(changed)
            try:
                hf.tokenizer(tmp_path)
            except UsageError:
                refused += 1
    assert refused > len(raw) / 32


@cache
def tiny():
    return load(tiny_gguf(0), weights=False).tokenizer


@pytest.fixture
def tokenizer():
    return tiny()


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_text_comes_back_from_its_tokens(text):
    tokenizer = tiny()

    assert normalize("NFC", text) == tokenizer.decode(tokenizer.encode(text))


@given(st.lists(st.integers(0, 299), max_size=40))
@settings(max_examples=300, deadline=None)
def test_streamed_pieces_join_to_the_decoded_text(ids):
    """No piece splits a character; damaged bytes become replacement characters, once."""
    tokenizer = tiny()
    stream = tokenizer.stream()
    pieces = [stream.put(i) for i in ids]

    whole = b"".join(tokenizer.token_bytes(i) for i in ids).decode("utf-8", "replace")
    assert whole == "".join(pieces) + stream.end()


def test_a_character_of_several_tokens_is_held_back(tokenizer):
    ids = tokenizer.encode("é🙂")
    stream = tokenizer.stream()
    pieces = [stream.put(i) for i in ids]

    assert len(ids) > 2
    assert set(pieces) == {"", "é", "🙂"}


def test_control_tokens_are_parsed_only_when_asked(tokenizer):
    assert len(tokenizer.encode("<|im_start|>")) > 1
    assert len(tokenizer.encode("<|im_start|>", special=True)) == 1


def test_an_unknown_pre_tokenizer_names_the_known_ones():
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen22", "tokenizer.ggml.tokens": ["a"]}
    with pytest.raises(UsageError, match="qwen22") as error:
        from_gguf(metadata)

    assert error.value.hint.startswith("known: qwen2")
    assert "Family.divisions" in error.value.hint


def test_a_division_that_a_package_adds_cuts_texts_by_its_patterns():
    """Digits are pieces of their own, so that they are not merged; the name's other consequences are the division's."""
    words = {"tokenizer.ggml.tokens": ["1", "2", "12", "é", "<s>"], "tokenizer.ggml.token_type": [1, 1, 1, 1, 3]}
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "own", **words}
    metadata |= {"tokenizer.ggml.merges": ["1 2"], "tokenizer.ggml.bos_token_id": 4}
    digits = from_gguf(metadata, divisions={"own": Division((r"\p{N}",), add_bos=True)})
    whole = from_gguf(metadata, divisions={"own": Division((r"\p{N}+",))})

    assert digits.encode("12") == [4, 0, 1]
    assert whole.encode("12") == [2]


@pytest.mark.parametrize("pre", sorted(PATTERNS))
def test_a_package_can_give_a_known_division_another_name(pre):
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [*"!12abé", "12", "ab"]}
    metadata |= {"tokenizer.ggml.merges": ["1 2", "a b"], "tokenizer.ggml.bos_token_id": 0}
    known, named = (
        from_gguf({**metadata, "tokenizer.ggml.pre": name}, divisions={"own": division(pre)}) for name in (pre, "own")
    )

    assert known.encode("12ab12") == named.encode("12ab12")
    assert known.bos == named.bos


def test_an_unknown_tokenizer_model_is_refused():
    with pytest.raises(UsageError, match="bert"):
        from_gguf({"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["a"]})


def test_chat_messages_become_the_templates_text(tokenizer):
    text = tokenizer.render([{"role": "user", "content": "hi"}])

    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_metadata_and_weights_share_one_tokenizer_while_both_are_held(tmp_path, monkeypatch):
    """A command reads metadata first; a file that was replaced is read again."""
    calls, real = [], tokenizers_of_gguf.from_gguf
    count_calls = lambda *args, **more: calls.append(real(*args, **more)) or calls[-1]
    monkeypatch.setattr(tokenizers_of_gguf, "from_gguf", count_calls)
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf(0).read_bytes())
    bare = load(path, weights=False)
    assert load(path).tokenizer is bare.tokenizer and len(calls) == 1

    path.unlink()
    path.write_bytes(tiny_gguf(0, salt="other words ").read_bytes())
    assert load(path).tokenizer is not bare.tokenizer and len(calls) == 2
