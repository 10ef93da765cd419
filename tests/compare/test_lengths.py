"""``--lengths``: each prompt gets this number of tokens and keeps its end; the curve, its figure, refusals."""

from __future__ import annotations

import json

import attrs
import pytest
from spec_cli.main import run_command
from spec_commands.prompt import tokens_of
from spec_commands.prompts import Prompt
from spec_compare.figures.outcome import recompute_outcome
from spec_compare.inputs.conversation import Conversation
from spec_compare.inputs.sized import SizedPrompt, read_lengths, size_prompts
from spec_compare.inputs.sources import source
from spec_compare.measuring.measure import batches
from spec_compare.measuring.resizing import resize_prompt
from spec_compare.records.reading import read_results

from spec_core import load
from spec_core.errors import UsageError

TEXTS = ["def add(a, b):\n    return a + b\n", "The river rises in spring. What does it do in autumn?", "one two three"]
PROMPTS = [Prompt(f"p{i}", "f", text) for i, text in enumerate(TEXTS)]


class Templated:
    """A tokenizer of characters with a chat template that has a beginning and an end."""

    vocab_size, eog, bos, identity, chat_template = 1 << 21, frozenset(), 1, "characters", "a template"

    def encode(self, text, *, special=False, bos=True):
        return [1] * bos + [ord(c) + 2 for c in text]

    def decode(self, ids):
        return "".join(chr(i - 2) for i in ids if i > 1)

    def encode_chat(self, messages):
        return self.encode("".join(f"<{m['role']}>{m['content']}</>" for m in messages) + "<assistant>")


@pytest.fixture(scope="module")
def pico():
    return load("zoo:pico", weights=False)


@pytest.fixture(scope="module")
def chatting(pico):
    class Chatting:
        info, tokenizer = attrs.evolve(pico.info, vocab=1 << 21), Templated()

    return Chatting()


def prompt_and_all(prompts, length, at=0):
    own = size_prompts(prompts, [length])
    return own[at], own


@pytest.mark.parametrize("length", [1, 2, 7, 40, 333])
def test_a_prompt_has_exactly_the_length_and_keeps_its_end(length, pico):
    for at, prompt in enumerate(PROMPTS):
        tokens = resize_prompt(*prompt_and_all(PROMPTS, length, at), pico)
        own = tokens_of(prompt.given, pico)
        body = own[own[0] == pico.tokenizer.bos :]
        kept = min(len(body), length - (tokens[0] == pico.tokenizer.bos))

        assert len(tokens) == length
        assert tokens[len(tokens) - kept :] == body[len(body) - kept :]
        assert tokens == resize_prompt(*prompt_and_all(PROMPTS, length, at), pico), "the same every time"


def test_texts_of_the_prompts_that_follow_stand_before_a_prompt(chatting):
    prompt, prompts = prompt_and_all([*PROMPTS, Prompt("other", "g", "another family")], 120)
    text = chatting.tokenizer.decode(resize_prompt(prompt, prompts, chatting))

    assert text.endswith(f"{TEXTS[1]}\n\n{TEXTS[2]}\n\n{TEXTS[0]}") and "another" not in text


def test_messages_keep_their_template(chatting):
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A long story. Who is it about?"}]
    prompts = [Prompt("a", "f", talk), Prompt("b", "f", [{"role": "user", "content": "Tell me more."}])]
    longer = chatting.tokenizer.decode(resize_prompt(*prompt_and_all(prompts, 150), chatting))
    shorter = chatting.tokenizer.decode(resize_prompt(*prompt_and_all(prompts, 62), chatting))

    assert longer.startswith("<system>Be brief.</><user>") and "Tell me more.\n\nA long story." in longer
    assert longer.endswith("Who is it about?</><assistant>") and len(longer) == 149
    assert shorter.startswith("<system>Be brief.</><user>") and shorter.endswith("about?</><assistant>")
    with pytest.raises(UsageError, match="chat template"):
        resize_prompt(*prompt_and_all(prompts, 20), chatting)


def test_token_ids_are_extended_by_token_ids(pico):
    prompts = [Prompt("a", "f", [5, 6, 7]), Prompt("b", "f", [8, 9])]

    assert resize_prompt(*prompt_and_all(prompts, 6), pico) == [9, 8, 9, 5, 6, 7]
    assert resize_prompt(*prompt_and_all(prompts, 2), pico) == [6, 7]


def test_a_single_prompt_is_extended_by_itself(pico):
    assert len(resize_prompt(*prompt_and_all(PROMPTS[:1], 64), pico)) == 64


@pytest.mark.parametrize(
    ("text", "cut", "message"),
    [("", None, "must be numbers"), ("0,5", None, "must be numbers"), ("-3", None, "must be numbers"),
     ("a,b", None, "must be numbers"), ("1e3", None, "must be numbers"), (str(1 << 40), None, "must be numbers"),
     ("8", 4, "both passed")],
)  # fmt: skip
def test_lengths_that_are_none_are_refused(text, cut, message):
    with pytest.raises(UsageError, match=message):
        read_lengths(text, cut)


def test_lengths_rise_and_occur_once():
    assert read_lengths("2048, 512,512", None) == [512, 2048]
    assert read_lengths(None, 4) == []


def test_conversations_and_pictures_are_refused(pico):
    with pytest.raises(UsageError, match="2 turns"):
        size_prompts([Conversation("a", "f", [], ("one", "two"))], [8])
    picture = [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]
    with pytest.raises(UsageError):
        resize_prompt(*prompt_and_all([Prompt("a", "f", picture)], 8), pico)


def test_prompts_of_different_lengths_never_run_together():
    prompts = size_prompts(PROMPTS, [8, 16])

    assert [{p.length for p in group} for group in batches(prompts, 2)] == [{8}, {8}, {16}, {16}]


def test_a_length_beyond_the_context_is_refused_before_weights(capsys, monkeypatch):
    def fail(*arguments, **more):
        raise AssertionError("weights were read")

    monkeypatch.setattr("spec_commands.common.load_target", fail)

    assert run_command(["compare", "-m", "zoo:pico", "--method", "ngram", "--lengths", "64,2048", "-n", "8"]) == 2
    assert "context has 2048" in capsys.readouterr().err


def test_the_curve_in_every_output(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="needs the extra report")
    out, prompts = tmp_path / "o", tmp_path / "p.jsonl"
    prompts.write_text("".join(json.dumps({"id": p.id, "family": p.family, "prompt": p.given}) + "\n" for p in PROMPTS))
    words = ["-m", "zoo:pico", "--method", "ngram", "--prompts", str(prompts), "--lengths", "32,96", "-n", "12"]
    assert run_command(["compare", *words, "--no-bounds", "--json", "--out", str(out)]) == 0
    body = json.loads(capsys.readouterr().out)

    assert [(r["contender"], r["length"], r["prompts"]) for r in body["lengths"]] == [
        ("plain", 32, 3), ("ngram", 32, 3), ("plain", 96, 3), ("ngram", 96, 3),
    ]  # fmt: skip
    assert all(r["speedup"] and r["tokens_per_step"] for r in body["lengths"])
    comparison = read_results(out)
    assert {r.prompt_tokens for lap in comparison.laps for r in lap.records} == {32, 96}
    assert comparison.header.prompts.lengths == [32, 96]
    assert json.loads(json.dumps(recompute_outcome(comparison).body()["lengths"])) == body["lengths"]

    stored = source(out / "prompts.jsonl", chat=False).prompts
    assert {type(p) for p in stored} == {SizedPrompt} and len(stored) == 6
    assert run_command(["compare", "export", str(out), "--figures", str(tmp_path / "f"), "--format", "svg"]) == 0
    assert (tmp_path / "f" / "context.svg").stat().st_size > 1000
    assert run_command(["compare", "report", str(out), str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "Context length" in page and "stand before a prompt" in page
    capsys.readouterr()
    assert run_command(["compare", "show", str(out)]) == 0
    assert "32 tokens" in capsys.readouterr().out


def test_a_stored_length_that_is_none_is_refused(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"id": "a", "prompt": "x", "extended_to": "many"}) + "\n")

    with pytest.raises(UsageError, match="line 1: extended_to"):
        source(path, chat=False)
