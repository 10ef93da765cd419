"""Training texts: lines of a file, and the texts that zoo models provide."""

from __future__ import annotations

import json

import pytest
from spec_train.data import texts
from spec_train.data.reduced_vocabulary import default_draft_vocab
from spec_zoo import CHAT_PROMPTS
from spec_zoo.texts import data as library
from spec_zoo.texts.chat import questions as chat_questions

from spec_core import load
from tests.support.small_models import tiny_gguf


def test_messages_become_a_prompt_in_the_format_of_the_model(tmp_path):
    chat = [{"role": "user", "content": "def add"}]
    lines = [{"messages": chat, "answer": "(a, b):"}, {"messages": chat}]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    target = load(tiny_gguf(0, layers=4), weights=False)
    answered, asked = texts.read_entries(tmp_path / "chats.jsonl")
    (row,) = texts.tokenize_entries([answered, asked], target)

    prompt = target.tokenizer.encode_chat(chat)
    assert row.tokens == (*prompt, *target.tokenizer.encode("(a, b):", bos=False))
    assert (row.start, asked.prompt_tokens(target), asked.text) == (len(prompt), prompt, None)


def test_lines_end_at_newlines_only(tmp_path):
    """Text from the web has separators that Python, but not JSON, ends a line at; editors put a mark before it."""
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in ("one\u2028two", "three\x85four")]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines), "utf-8-sig")

    assert [entry.text for entry in texts.read_entries(tmp_path / "texts.jsonl")] == ["one\u2028two", "three\x85four"]


@pytest.mark.parametrize("line", [{"answer": "def add"}, {"text": "def add"}])
def test_a_line_without_a_prompt_is_a_text(line, tmp_path):
    (tmp_path / "texts.jsonl").write_text(json.dumps(line), "utf-8")

    assert texts.read_entries(tmp_path / "texts.jsonl") == [texts.TextEntry("", "def add")]


def test_prompts_of_a_zoo_chat_model_can_be_held_out():
    assert len(texts.read_entries(CHAT_PROMPTS)) == 40


@pytest.mark.slow
def test_a_zoo_model_provides_texts(monkeypatch):
    import spec_zoo

    monkeypatch.setattr(spec_zoo, "TASKS", 20)
    texts = load("zoo:pico", weights=False).training_texts.texts()

    assert len(texts) > 500
    assert not [t for t in texts if "class JSONDecoder" in t]


@pytest.mark.release
@pytest.mark.slow
def test_a_chat_model_of_the_zoo_provides_questions(monkeypatch):
    """Messages, all different, and none of the shipped prompts. The library's documentation is searched once."""
    read, texts = library.docstrings, []
    monkeypatch.setattr(library, "docstrings", lambda code: texts or texts.extend(read(code)) or texts)
    shown = {json.loads(line)["messages"][-1]["content"] for line in CHAT_PROMPTS.read_text("utf-8").splitlines()}
    chats = chat_questions(160)
    asked = [message["content"] for chat in chats for message in chat]

    assert len(set(asked)) == 160
    assert not shown & set(asked)
    assert chat_questions(40) == chats[:40]


@pytest.mark.parametrize(("vocab", "drafted"), [(300, 300), (16383, 16383), (16384, 8192), (49152, 12288)])
def test_a_quarter_of_a_large_vocabulary_can_be_drafted_by_default(vocab, drafted):
    assert default_draft_vocab(vocab) == drafted
