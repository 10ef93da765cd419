"""Hostile tokenizers: work in proportion to the file, and failures of the library as messages."""

from __future__ import annotations

import json
import threading
import tracemalloc

import pytest
from spec_targets.tokenizer.hf import from_hf
from spec_targets.tokenizer.hostile import growth_of, refuse_failures
from spec_targets.tokenizer.sentencepiece import from_sentencepiece

from spec_core import UsageError
from tests.support.golden import golden

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
BASE = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
BASE |= {"version": "1.0", "added_tokens": [], "model": BPE}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


LONG = "x" * 1_000_000
HOSTILE = {
    "a huge id": ({"model": {**BPE, "vocab": {"a": 0, "b": 2_000_000_000}}}, "id 2000000000"),
    "a large id": ({"model": {**BPE, "vocab": {"a": 0, "b": 1_000_000}}}, "id 1000000, in a file of"),
    "a long replacement": ({"normalizer": replace({"String": "a"}, LONG)}, "normaliser makes more than 64"),
    "a long beginning": ({"normalizer": {"type": "Prepend", "prepend": LONG}}, "normaliser makes more than 64"),
    "replacements of replacements": (
        {"normalizer": {"type": "Sequence", "normalizers": [replace({"Regex": ""}, "x")] * 30}},
        "normaliser makes more than 64",
    ),
    "beginnings of beginnings": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x"}] * 99}},
        "normaliser makes more than 64",
    ),
    "no tokenizer": ({"model": {"type": "nothing"}}, "tokenizer.json: cannot be read"),
}


def write(folder, changes) -> None:
    (folder / "tokenizer.json").write_text(json.dumps({**BASE, **changes}), "utf-8")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_before_work_is_done(name, tmp_path):
    changes, message = HOSTILE[name]
    write(tmp_path, changes)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=message):
            from_hf(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_an_id_that_a_small_file_only_announces_is_refused_beside_a_model_too(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes((golden("gemma3") / "hf" / "tokenizer.model").read_bytes())
    config = {"added_tokens_decoder": {"2000000": {"content": "<x>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    with pytest.raises(UsageError, match="a token has the id 2000000"):
        from_sentencepiece(tmp_path)


@pytest.mark.parametrize("size", [-11, -1, 1 << 40])
def test_a_field_of_a_model_whose_length_cannot_be_is_refused_at_once(tmp_path, size):
    """A length below zero would lead back to the field itself."""
    number = size % (1 << 64)
    length = bytes(number >> shift & 127 | (128 if number >> shift + 7 else 0) for shift in range(0, 64, 7))
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a" + length.rstrip(b"\0"))

    with pytest.raises(UsageError, match=r"tokenizer\.model"):
        from_sentencepiece(tmp_path)


PATTERN = {"Regex": "(b*)*c|(a|a)*$|(?=(a+)+d)"}


def test_a_panic_of_the_library_is_a_message_and_the_tokenizer_goes_on(tmp_path):
    """In every thread: a pattern that exhausts the engine's retries."""
    write(tmp_path, {"pre_tokenizer": {"type": "Split", "pattern": PATTERN, "behavior": "Isolated", "invert": False}})
    tokenizer, messages = from_hf(tmp_path), []

    def encode() -> None:
        try:
            tokenizer.encode("a" * 60 + "b")
        except UsageError as error:
            messages.append(str(error))

    encode()
    thread = threading.Thread(target=encode)
    thread.start()
    thread.join()

    assert len(messages) == 2 and all("the text cannot be tokenized" in one and "/" not in one for one in messages)
    assert tokenizer.encode("ab") == [0, 1]


def test_other_exceptions_that_are_no_errors_pass():
    for kind in (KeyboardInterrupt, SystemExit):
        with pytest.raises(kind), refuse_failures("x", "y"):
            raise kind


def test_a_text_is_neither_cut_nor_padded_nor_repeated_by_its_file(tmp_path):
    """As in transformers, which sets both for every call; ids that a template adds are not those of a text."""
    padding = {"strategy": {"Fixed": 50}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    padding["pad_to_multiple_of"] = None
    twice = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2}
    twice |= {"pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]}
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    more = {"padding": padding, "truncation": truncation, "post_processor": {**twice, "special_tokens": {}}}
    write(tmp_path, more)

    assert from_hf(tmp_path).encode("abab" * 3) == [0, 1, 0, 1] * 3


def test_normalisers_of_published_tokenizers_are_far_from_the_limit():
    """Llama, Gemma, Qwen, and normalisers that replace quotes and runs of spaces."""
    llama = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")]}
    albert = [
        replace({"String": "``"}, '"'),
        {"type": "NFKD"},
        {"type": "StripAccents"},
        replace({"Regex": " {2,}"}, " "),
    ]

    assert growth_of(llama, 1) == 2
    assert growth_of(replace({"String": " "}, "▁"), 1) == growth_of({"type": "NFC"}, 1) == growth_of(None, 1) == 1
    assert growth_of({"type": "Sequence", "normalizers": albert}, 1) == 2
