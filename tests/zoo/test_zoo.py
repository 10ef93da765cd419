"""The shipped models and what they were made with."""

from __future__ import annotations

import json

import numpy as np
import pytest
from spec_targets.formats.gguf import open_gguf
from spec_zoo import HERE, PROMPTS, ZOO, path
from spec_zoo.texts import data, prompts, tasks, tokens

from spec_core import Run, Sampling, UsageError, load
from tools.zoo.prompts import MAX_TOKENS
from tools.zoo.trigram import Trigram

MODELS = ("pico", "pico-draft", "pico-hybrid")
HEADS = tuple(name for name in ("pico-eagle3", "pico-dflash") if ZOO[name].there())
MAX_BYTES, MAX_TOGETHER = 12e6, 24e6
KEYS = [
    "general.name",
    "general.license",
    "general.file_type",
    "{}.context_length",
    "{}.embedding_length",
    "{}.block_count",
    "{}.feed_forward_length",
    "{}.attention.head_count",
    "{}.attention.head_count_kv",
    "{}.attention.key_length",
    "{}.attention.value_length",
    "{}.attention.layer_norm_rms_epsilon",
    "{}.rope.freq_base",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.chat_template",
]
RECURRENT_KEYS = [
    "{}.full_attention_interval",
    "{}.nextn_predict_layers",
    "{}.rope.dimension_count",
    "{}.rope.dimension_sections",
    "{}.ssm.conv_kernel",
    "{}.ssm.group_count",
    "{}.ssm.inner_size",
    "{}.ssm.state_size",
    "{}.ssm.time_step_rank",
]
FLOAT = ("ssm_conv1d.weight", "ssm_alpha.weight", "ssm_beta.weight")


def test_files_are_small_enough_to_ship():
    sizes = {file.name: file.stat().st_size for file in (HERE / "models").iterdir()}

    assert sizes.keys() == {ZOO[name].file for name in (*MODELS, *HEADS)}
    assert max(sizes.values()) <= MAX_BYTES
    assert sum(sizes.values()) <= MAX_TOGETHER


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("key", KEYS)
def test_metadata_are_complete(name, key):
    metadata = open_gguf(path(name)).metadata

    assert key.format(metadata["general.architecture"]) in metadata


@pytest.mark.parametrize("key", RECURRENT_KEYS)
def test_metadata_of_the_hybrid_are_complete(key):
    assert key.format("qwen35") in open_gguf(path("pico-hybrid")).metadata


@pytest.mark.parametrize("name", [*MODELS, *HEADS])
def test_matrices_are_q8_0_and_norms_float(name):
    for tensor in open_gguf(path(name)).tensors.values():
        small = len(tensor.shape) == 1 or tensor.name.endswith(FLOAT)
        assert tensor.type == ("F32" if small else "Q8_0"), tensor.name


def test_target_and_draft_share_a_vocabulary():
    infos = [load(f"zoo:{name}", weights=False).info for name in (*MODELS, *HEADS)]

    assert len({(info.vocab, info.vocab_id) for info in infos}) == 1


@pytest.mark.parametrize("name", ["pico", "pico-hybrid"])
def test_a_target_knows_its_companions(name):
    """``-m zoo:pico --method draft-model`` needs no file."""
    run = Run(load(f"zoo:{name}"), methods=["draft-model"])

    assert run.generate("def add(a, b):\n", max_tokens=16, ignore_eos=True).result.stats["drafted"] > 0


@pytest.mark.parametrize("name", HEADS)
def test_a_target_knows_its_heads(name):
    """``-m zoo:pico --method eagle3`` needs no file."""
    of, method = name.split("-")
    target = load(f"zoo:{of}")
    plain, fast = (Run(target, methods=m).generate("def add(a, b):\n", max_tokens=48).result for m in ([], [method]))

    assert plain.tokens == fast.tokens
    assert fast.stats["accepted"] > 0


def test_a_companion_is_offered_where_its_file_is(monkeypatch, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pico.gguf").symlink_to(path("pico"))
    monkeypatch.setattr("spec_zoo.HERE", tmp_path)
    assert load("zoo:pico", weights=False).info.companions == {}

    (tmp_path / "models" / "pico-eagle3.gguf").touch()
    assert load("zoo:pico", weights=False).info.companions == {"eagle3": "zoo:pico-eagle3"}


def test_a_file_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("spec_zoo.HERE", tmp_path)
    with pytest.raises(UsageError, match=r"zoo:pico: this installation lacks pico\.gguf"):
        load("zoo:pico")


@pytest.mark.parametrize("methods", [["ngram"], ["mtp"], ["ngram", "mtp"]], ids="+".join)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_hybrid_writes_the_same_text_with_its_own_layer(methods, temperature):
    target, sampling = load("zoo:pico-hybrid"), Sampling(temperature=temperature)
    prompt = "names = [1, 2, 3, 4]\n" * 6
    plain, fast = (
        Run(target, methods=m).generate(prompt, max_tokens=48, sampling=sampling).result for m in ([], methods)
    )

    assert plain.tokens == fast.tokens
    assert fast.stats["accepted"] > 0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match="pica") as error:
        path("pica")
    assert error.value.hint.startswith("it has: pico")


def test_shipped_prompts_fit_and_have_four_families():
    tokenizer = load("zoo:pico", weights=False).tokenizer
    lines = [json.loads(line) for line in PROMPTS.read_text("utf-8").splitlines()]

    assert {p["family"] for p in lines} == set(prompts.FAMILIES)
    assert len({p["id"] for p in lines}) == len(lines) >= 32
    assert max(len(tokenizer.encode(p["prompt"])) for p in lines) <= MAX_TOKENS


def test_training_and_held_out_files_are_apart(tmp_path):
    """Packages never cross, tests and tables are left out, and a block that came before is dropped."""
    for name, text in {
        "json/__init__.py": "a = 1\n" * 60,
        "tokenize.py": "b = 2\n" * 60,
        "copy.py": "".join(f"line_{i} = {i}\n" for i in range(60)),
        "zzz.py": "".join(f"line_{i} = {i}\n" for i in range(60)),
        "test/test_x.py": "c = 3\n" * 60,
        "encodings/cp1.py": "d = 4\n" * 60,
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    train, held = data.split_files(tmp_path)

    assert len(held) == 1 and held[0].startswith("a = 1")
    assert len(train) == 2 and not any("c = 3" in t or "d = 4" in t for t in train)


def test_edits_repeat_what_they_do_not_change():
    import random

    rng = random.Random(0)
    text = "def f(value):\n    total = value + 10\n    return total\n" * 3
    instruction, edited = tasks.rename_task(rng, text)
    old, new = instruction.split("with ")[1].rstrip(":").split(" renamed to ")

    assert edited == __import__("re").sub(rf"\b{old}\b", new, text)
    assert tasks.without_line(rng, text)[1].count("\n") == text.count("\n") - 1


def test_repeated_spans_come_back():
    rng = np.random.default_rng(0)
    row = tokens.repeat_row(rng, np.arange(5000) % 3000, 300)
    spans = [p for p in range(16, 292) if (row[p : p + 8] == row[:8]).all()]

    assert spans


def test_the_trigram_is_a_distribution():
    rng = np.random.default_rng(0)
    model = Trigram(rng.integers(0, 7, 500), 7)
    c = np.arange(7)
    for a, b in [(0, 1), (3, 3), (6, 2)]:
        assert model.p(np.full(7, a), np.full(7, b), c).sum() == pytest.approx(1)


def test_the_trigram_learns_what_follows():
    text = np.array([1, 2, 3, 4] * 50)
    assert Trigram(text, 5).loss(text) < 0.1
