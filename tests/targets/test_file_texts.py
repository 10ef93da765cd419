"""Texts of a GGUF file, read from its mapping whenever they are asked for."""

from __future__ import annotations

import tracemalloc
from array import array

import pytest
from spec_targets.formats.gguf import open_gguf
from spec_targets.formats.texts import Texts
from spec_zoo import path

from spec_core import load

GIVEN = ["", "a", " leading", "größer", "日本語", "\0"]


def stored_texts(texts: list[bytes]) -> Texts:
    """Texts as a file has them, behind three bytes of something else."""
    data, ends = b"xyz", array("Q")
    for text in texts:
        data += len(text).to_bytes(8, "little") + text
        ends.append(len(data))
    return Texts(memoryview(data), 3, ends)


@pytest.fixture
def texts() -> Texts:
    return stored_texts([text.encode() for text in GIVEN])


def test_they_are_read_one_by_one_in_order_and_in_slices(texts):
    assert [texts[i] for i in range(len(texts))] == list(texts) == GIVEN
    assert texts[-1] == GIVEN[-1] and texts[1:5:2] == GIVEN[1:5:2] and texts[9:] == []
    assert texts == GIVEN and texts != GIVEN[1:]


@pytest.mark.parametrize("at", [6, -7])
def test_one_that_is_not_there_is_an_error(texts, at):
    with pytest.raises(IndexError):
        texts[at]


def test_damaged_bytes_become_replacement_characters():
    assert list(stored_texts([b"a\xffb"])) == ["a\ufffdb"]


def test_a_vocabulary_is_not_in_memory():
    """Open, a file of some thousand tokens and merges holds eight bytes of each."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        file = open_gguf(path("pico"))
        texts = [value for value in file.metadata.values() if isinstance(value, Texts)]
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    count = sum(map(len, texts))
    others = sum(len(v) for v in file.metadata.values() if isinstance(v, list)) + len(file.tensors)
    assert count > 2000
    assert held < 16 * count + 1000 * len(file.tensors) + 64 * others


def test_a_tokenizer_keeps_the_texts_of_its_file():
    tokenizer = load("zoo:pico", weights=False).tokenizer

    assert isinstance(tokenizer.pieces, Texts)
    assert tokenizer.decode(tokenizer.encode("def größer(a, b):")) == "def größer(a, b):"
