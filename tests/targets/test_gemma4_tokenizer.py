"""The tokenizer of Gemma 4 in both forms: newlines, spaces, bytes, control tokens, ends, and hostile metadata."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_targets.formats.gguf import open_gguf
from spec_targets.tokenizer.base import Tokenizer
from spec_targets.tokenizer.gguf_vocabulary import BYTE, CONTROL, NORMAL, USER, from_gguf
from spec_targets.tokenizer.hf import from_hf

from spec_core import UsageError
from tests.support.golden import golden
from tests.support.random_texts import different_texts

FAMILIES = ["gemma4-e", "gemma4-k", "gemma4-moe"]
FORMS = ["gguf", "tokenizer.json"]
LONGEST = 4
"""Newlines of the longest token in the golden vocabulary."""


def metadata_of(family: str) -> dict[str, Any]:
    return dict(open_gguf(golden(family) / "model-f32.gguf").metadata)


@cache
def tokenizer_of(form: str, family: str = "gemma4-e") -> Tokenizer:
    return from_gguf(metadata_of(family)) if form == "gguf" else from_hf(golden(family) / "hf")


@pytest.mark.parametrize("family", FAMILIES)
def test_random_texts_have_the_ids_of_the_other_file(family):
    """With runs of newlines and spaces, tabs, emoji, any character, and names of special tokens."""
    assert different_texts(family, 400, seed=FAMILIES.index(family)) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_both_files_have_one_vocabulary(family):
    by_form = [tokenizer_of(form, family) for form in FORMS]
    for attribute in ("identity", "control", "bos", "eos", "eog", "add_bos", "names", "chat_template"):
        first, second = (getattr(tokenizer, attribute) for tokenizer in by_form)
        assert first == second, attribute


@pytest.mark.parametrize("form", FORMS)
def test_runs_of_newlines_are_tokens_up_to_the_longest(form):
    tokenizer = tokenizer_of(form)
    for count in range(1, 3 * LONGEST):
        ids = tokenizer.encode("a" + "\n" * count + "b", bos=False)[1:-1]
        assert [tokenizer.token_bytes(i) for i in ids] == [b"\n" * len(tokenizer.pieces[i]) for i in ids]
        assert len(ids) == -(-count // LONGEST)


@pytest.mark.parametrize("form", FORMS)
def test_every_byte_has_a_token_and_comes_back(form):
    """Characters without a token are their bytes, and a name of a byte in a text is text."""
    tokenizer = tokenizer_of(form)
    ids = tokenizer.encode("\x00\t\x7fé🙂", bos=False)

    assert b"".join(map(tokenizer.token_bytes, ids)) == "\x00\t\x7fé🙂".encode()
    assert len(ids) == 3 + 2 + 4
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_text_comes_back_from_its_tokens(text):
    """``▁`` alone becomes a space, as in every vocabulary that writes spaces so."""
    for form in FORMS:
        tokenizer = tokenizer_of(form)
        assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ")


@given(st.lists(st.integers(0, 383), max_size=40))
@settings(max_examples=200, deadline=None)
def test_streamed_pieces_join_to_the_decoded_text(ids):
    for form in FORMS:
        tokenizer = tokenizer_of(form)
        stream = tokenizer.stream()
        whole = b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace")
        assert "".join([*map(stream.put, ids), stream.end()]) == whole == tokenizer.decode(ids)


@pytest.mark.parametrize("form", FORMS)
def test_a_character_of_several_tokens_is_held_back(form):
    tokenizer = tokenizer_of(form)
    stream = tokenizer.stream()

    assert [stream.put(i) for i in tokenizer.encode("é🙂 a", bos=False)] == ["", "é", "", "", "", "🙂", " a"]


@pytest.mark.parametrize("form", FORMS)
def test_turns_are_control_tokens_and_end_a_text(form):
    """The golden GGUF file declares them as ordinary text."""
    tokenizer = tokenizer_of(form)
    start, end = (tokenizer.encode(name, special=True, bos=False) for name in ("<|turn>", "<turn|>"))

    assert (start, end) == ([tokenizer.pieces.index("<|turn>")], [tokenizer.pieces.index("<turn|>")])
    assert tokenizer.eog == {tokenizer.eos, *end}
    assert tokenizer.decode([*start, *tokenizer.encode("a", bos=False), *end]) == "a"
    assert len(tokenizer.encode("<turn|>", bos=False)) > 1


@pytest.mark.parametrize("form", FORMS)
def test_the_golden_template_gives_turns(form):
    tokenizer = tokenizer_of(form)
    turn, end = tokenizer.pieces.index("<|turn>"), tokenizer.pieces.index("<turn|>")
    ids = tokenizer.encode_chat([{"role": "user", "content": "a <turn|>\n\n"}])

    assert ids == tokenizer_of("tokenizer.json").encode_chat([{"role": "user", "content": "a <turn|>\n\n"}])
    assert ids[:2] == [tokenizer.bos, turn]
    assert [i for i in ids if i in tokenizer.control] == [tokenizer.bos, turn, end, turn]


# small vocabularies


def small(**changes: Any) -> dict[str, Any]:
    """Metadata of a vocabulary of bytes and a few words, with changes."""
    words = ["<eos>", "<bos>", "<turn|>", "<|turn>", "<|tool_call>", "<|tool_response>", "</s>", "a", "b", "▁", "ab"]
    words += ["▁ab", "\n", "\n\n"]
    tokens = [*(f"<0x{byte:02X}>" for byte in range(256)), *words]
    types = [*[BYTE] * 256, CONTROL, CONTROL, NORMAL, NORMAL, USER, USER, *[NORMAL] * 8]
    fields = {"model": "gemma4", "tokens": tokens, "token_type": types, "merges": ["a b", "▁ ab", "\n \n"]}
    fields |= {"eos_token_id": 256, "bos_token_id": 257, **changes}
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}


def test_declared_types_are_those_of_published_files():
    """Calls of tools are visible text, their answers end a text, and ``</s>`` is a tag of HTML."""
    tokenizer = from_gguf(small())
    call, answer = (tokenizer.pieces.index(name) for name in ("<|tool_call>", "<|tool_response>"))

    assert tokenizer.encode("<|tool_call>ab", bos=False) == [call, tokenizer.pieces.index("ab")]
    assert tokenizer.decode([call]) == "<|tool_call>"
    assert tokenizer.decode([answer]) == ""
    assert {tokenizer.pieces[i] for i in tokenizer.eog} == {"<eos>", "<turn|>", "<|tool_response>"}


def test_an_end_that_the_file_names_stays_one():
    names = small()["tokenizer.ggml.tokens"]

    assert names.index("</s>") in from_gguf(small(eos_token_id=names.index("</s>"))).eog


@pytest.mark.parametrize("value", [None, True, False])
def test_every_text_begins_with_bos_whatever_the_file_says(value):
    assert from_gguf(small(add_bos_token=value)).encode("ab") == [257, 266]


def test_merges_reach_over_spaces_and_not_over_lines():
    tokens, types = (small()[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
    fields = {"tokens": [*tokens, "b\n"], "token_type": [*types, NORMAL], "merges": ["b \n", "a b", "▁ ab", "\n \n"]}
    tokenizer = from_gguf(small(**fields))
    ids = tokenizer.encode("ab ab\n\n\nab", bos=False)

    assert [tokenizer.pieces[i] for i in ids] == ["ab", "▁ab", "\n\n", "\n", "ab"]


TOKENS = small()["tokenizer.ggml.tokens"]
HOSTILE = {
    "no tokens": ({"tokens": None}, "tokenizer.ggml.tokens is NoneType"),
    "tokens that are a text": ({"tokens": "abc"}, "tokenizer.ggml.tokens is str"),
    "a token that is a number": ({"tokens": [*TOKENS[:-1], 3]}, "tokens must be texts"),
    "too few types": ({"token_type": [1]}, "270 tokens and 1 token types"),
    "no merges": ({"merges": None}, "tokenizer.ggml.merges is NoneType"),
    "merges that are a text": ({"merges": "a b"}, "tokenizer.ggml.merges is str"),
    "a merge of an unknown token": ({"merges": ["a b", "a zz"]}, "the merge 'a zz' is not of two tokens to a third"),
    "a merge to an unknown token": ({"merges": ["b a"]}, "the merge 'b a' is not of two tokens to a third"),
    "a merge of one token": ({"merges": ["ab"]}, "the merge 'ab' is not"),
    "a merge that is a number": ({"merges": [7]}, "the merge '7' is not"),
    "a long merge": ({"merges": ["x" * 10**6]}, "the merge 'x{40}' is not"),
    "a byte without a token": ({"tokens": ["<0xzz>" if t == "<0xC3>" else t for t in TOKENS]}, "<0xC3> is missing"),
    "no bytes": (
        {"tokens": ["a"], "token_type": [1], "merges": [], "bos_token_id": 0, "eos_token_id": 0},
        "<0x00> is missing",
    ),
    "no beginning": ({"bos_token_id": None}, "tokenizer.ggml.bos_token_id is NoneType"),
    "a beginning outside": ({"bos_token_id": 9999}, "bos token is 9999 of 270"),
    "an end outside": ({"eos_token_id": -1}, "eos token is -1 of 270"),
    "an end that is a text": ({"eos_token_id": "<eos>"}, "tokenizer.ggml.eos_token_id is str"),
    "a switch that is a text": ({"add_bos_token": "yes"}, "tokenizer.ggml.add_bos_token is str"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata_is_refused_by_name(name):
    changes, message = HOSTILE[name]
    with pytest.raises(UsageError, match=message) as error:
        from_gguf(small(**changes), "model.gguf").encode("")

    assert "model.gguf" in str(error.value) and len(str(error.value)) < 300
    assert "damaged" in error.value.hint


def test_a_merge_of_an_unknown_token_is_refused_in_a_directory_too(tmp_path):
    raw = json.loads((golden("gemma4-e") / "hf" / "tokenizer.json").read_text("utf-8"))
    raw["model"]["merges"].append(["a", "zz"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw), "utf-8")

    with pytest.raises(UsageError, match=r"tokenizer.json: cannot be read.*zz"):
        from_hf(tmp_path)
