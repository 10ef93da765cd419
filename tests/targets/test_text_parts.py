"""Parts of a text in vocabularies with a space prefix: the prefix belongs to the beginning of a whole text only."""

from __future__ import annotations

import importlib.util
import json
import random
from functools import cache
from pathlib import Path

import pytest
from spec_targets.tokenizer.hf import from_hf
from spec_targets.tokenizer.prefix import BARE, steps_of_part
from spec_targets.tokenizer.sentencepiece import from_sentencepiece
from tokenizers import Tokenizer as Backend

from spec_core import Request, Run, Sampling
from spec_core.toolkit import decode_after, encode_after, encode_part, stream_after
from tests.support.golden import golden
from tests.support.space_prefix import FAMILIES, FORMS, model

MODELS = [(family, form) for family in FAMILIES for form in FORMS]
WORDS = ["The", " capital", "  of", "\n", "é", "日本", "\t", "🙂", " ", "a", "b c", "▁", "{", '"', "x=1"]


def texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(WORDS, k=rng.randrange(1, 9))) for _ in range(count)]


@cache
def transformers(family: str):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(golden(family) / "hf" / "tokenizer.json"))


def decode(family: str, ids: list[int]) -> str:
    return transformers(family).decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("family, form", MODELS)
def test_an_answer_is_what_transformers_decodes_of_prompt_and_answer(family, form):
    """Of random tokens too, with and without a beginning token, and where the prompt has no text."""
    tokenizer, rng = model(family, form).tokenizer, random.Random(1)
    prompts = [[], [1], *(tokenizer.encode(text, bos=bool(i % 2)) for i, text in enumerate(texts(40, 2)))]
    spaces = 0
    for prompt in prompts:
        for answer in (tokenizer.encode_part(texts(1, len(prompt))[0]), rng.choices(range(259, 480), k=5)):
            together, before = decode(family, [*prompt, *answer]), decode(family, prompt)
            assert together.startswith(before)
            decoded = decode_after(tokenizer, answer, prompt)
            assert decoded == together[len(before) :]
            stream = stream_after(tokenizer, prompt)
            assert decoded == "".join([*map(stream.put, answer), stream.end()])
            spaces += decoded.startswith(" ")
    assert spaces > 10


@pytest.mark.parametrize("family, form", MODELS)
def test_the_ids_of_a_part_are_those_of_the_middle_of_a_text(family, form):
    """Behind a line break, which is joined with nothing."""
    tokenizer = model(family, form).tokenizer
    before = tokenizer.encode("a\n", bos=False)
    for text in texts(200, 3):
        whole = tokenizer.encode("a\n" + text, bos=False)
        assert [*before, *encode_part(tokenizer, text)] == whole
        assert [*before, *encode_after(tokenizer, text, before)] == whole
        assert encode_after(tokenizer, text, [1]) == tokenizer.encode(text, bos=False)
        assert b"".join(map(tokenizer.token_bytes, encode_part(tokenizer, text))).decode() == text.replace("▁", " ")


BYTES = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
SPACES = {"type": "Metaspace", "replacement": "▁", "split": False}
ALWAYS = {**SPACES, "prepend_scheme": "always"}
STEPS = {
    "metaspace-first": {"pre_tokenizer": {**SPACES, "prepend_scheme": "first"}},
    "metaspace-always": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [ALWAYS]}},
    "byte-level": {"pre_tokenizer": {**BYTES, "add_prefix_space": True}},
    "prepend": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}]}},
    "only-prepend": {"normalizer": {"type": "Prepend", "prepend": "▁"}},
}


@pytest.mark.parametrize("name", STEPS)
def test_every_way_of_writing_the_space_is_left_out_of_a_part(name):
    vocab = {"a": 0, "▁": 1, "Ġ": 2, "▁a": 3, "Ġa": 4}
    bpe = {"type": "BPE", "vocab": vocab, "merges": ["▁ a", "Ġ a"]}
    raw = {**BARE, **STEPS[name], "model": bpe}
    backend = Backend.from_str(json.dumps(raw))
    assert backend.encode("a").ids in ([3], [4])

    steps_of_part(raw).put_into(backend)
    assert backend.encode("a").ids == [0]


def test_a_vocabulary_without_a_prefix_has_one_way_to_encode():
    assert steps_of_part({"normalizer": {"type": "NFC"}, "pre_tokenizer": None}) is None
    tokenizer = from_hf(golden("gemma3") / "hf")
    for text in texts(50, 4):
        assert encode_part(tokenizer, text) == tokenizer.encode(text, bos=False)


def models_of_sentencepiece() -> list[Path]:
    """Models of the golden families, and Mistral 7B's if the package that ships it is installed."""
    files = [golden(family) / "hf" / "tokenizer.model" for family in (*FAMILIES, "gemma3")]
    package = importlib.util.find_spec("mistral_common")
    folders = (package and package.submodule_search_locations) or []
    return [*files, *(Path(folder) / "data" / "tokenizer.model.v1" for folder in folders)]


def test_ids_and_texts_are_those_of_sentencepiece(tmp_path):
    """Whole texts, and answers decoded together with their prompts."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="is no dependency of the tests")
    for file in models_of_sentencepiece():
        (tmp_path / "tokenizer.model").write_bytes(file.read_bytes())
        tokenizer = from_sentencepiece(tmp_path)
        reference = sentencepiece.SentencePieceProcessor(model_file=str(file))
        rng = random.Random(7)
        for text in texts(200, 8):
            ids = reference.encode(text)
            assert tokenizer.encode(text, bos=False) == ids
            at = rng.randrange(len(ids) + 1)
            if "\ufffd" not in (before := reference.decode(ids[:at])):
                assert before + decode_after(tokenizer, ids[at:], ids[:at]) == reference.decode(ids)


# texts of runs


@pytest.mark.parametrize("family, form", MODELS)
def test_the_first_space_of_a_completion_is_part_of_its_text(family, form):
    """Text, pieces, stop texts and predictions agree with the decoded tokens."""
    target = model(family, form)
    tokenizer, prompt = target.tokenizer, "The capital of France is"
    bias = Sampling(logit_bias={tokenizer.encode_part(" of")[0]: 60.0})
    with Run(target) as run:
        events = list(run.generate(prompt, max_tokens=6, sampling=bias))
        result = run.generate(prompt, max_tokens=6, sampling=bias).result
        stopped = run.generate(prompt, max_tokens=6, sampling=bias, stop=[result.text[:2]]).result
        assert result.text[:2] != result.text

    assert result.text.startswith(" ")
    assert (
        result.text
        == "".join(e.text for e in events)
        == tokenizer.decode(tokenizer.encode(prompt) + result.tokens).removeprefix(prompt)
    )
    assert stopped.text == "" and stopped.finish_reason == "stop"


@pytest.mark.parametrize("family, form", MODELS)
def test_a_predicted_text_is_accepted_from_its_first_space_on(family, form):
    target, prompt = model(family, form), "The capital of France is"
    with Run(target, ["prediction"]) as run:
        plain = run.generate(prompt, max_tokens=24).result
        again = run.generate(prompt, max_tokens=24, prediction=plain.text).result

    usual = target.tokenizer.encode_part(plain.text)
    same = next((i for i, (a, b) in enumerate(zip(usual, plain.tokens, strict=False)) if a != b), len(usual))
    assert again.tokens == plain.tokens
    assert again.stats["accepted"] >= min(same, 8) - 1


def test_texts_are_translated_for_a_draft_model_as_its_own_texts_begin():
    """A draft model with a prefix gets it once; one without gets none; its beginning token is there."""
    from spec_methods.draft_model.vocabulary import translation

    prefixed, plain = model("mistral", "gguf"), model_without_prefix()
    text = "def add(a, b) is a sum"
    for target, draft in ((prefixed, plain), (plain, prefixed)):
        words = translation(target, draft)
        ids = words.whole_to_draft(target.tokenizer.encode(text))
        assert draft.tokenizer.decode(ids) == text
        assert ids[:2] == draft.tokenizer.encode(text)[:2]
        assert draft.tokenizer.decode([*ids, *words.to_draft(target.tokenizer.encode_part(" of"))]) == text + " of"


@cache
def model_without_prefix():
    from spec_core import load

    return load(golden("llama") / "hf", weights=False)


def test_a_constraint_at_the_beginning_of_a_text_keeps_its_first_space():
    """What the constraint matched is the text, also where nothing stands before it."""
    grammar = pytest.importorskip("spec_grammar", reason="needs the extra grammar")
    pytest.importorskip("llguidance", reason="needs the extra grammar")
    target = model("mistral", "gguf")
    result = Run(target).generate(Request([1], max_tokens=20, constraint=grammar.Regex(" yes"))).result

    assert result.text == " yes"
