"""Heads in the dialects of 2026 against the vectors of their trainers, each set of outputs in its own reading."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import attrs
import pytest
import torch
from safetensors.torch import load_file
from spec_kernels.layer_executor import executor_of
from spec_kernels.model.head import spread_logits, tokens_of
from spec_methods.block_drafters.layers import Layers
from spec_methods.block_drafters.sequential import sequential_part
from spec_methods.eagle3.layer import Layer

from spec_core import load
from tests.support.golden import golden
from tests.support.small_heads import edit_config, edit_tensors

TOLERANCE = 2e-5
"""Of states, and of logits up to 8; implementations differ by as much."""
PLAIN, GGUF = "hf", "model-f32.gguf"
BLOCKS = [
    ("laguna-dflash", PLAIN, "", {}),
    ("laguna-dflash", PLAIN, "mlx_vlm.", {"context_norm": False, "anchored": True}),
    ("dspark-deepspec-partial", PLAIN, "", {}),
    ("dspark-renamed", PLAIN, "", {}),
    ("dspark-renamed", GGUF, "", {}),
    ("dspine", PLAIN, "", {}),
    ("lilicorr", PLAIN, "", {}),
    ("muse-dflash", PLAIN, "", {}),
    ("muse-dflash", PLAIN, "window_minus_1.", {"windows": (16, 16)}),
    ("muse-dflash", GGUF, "window_minus_1.", {}),
    ("muse-dflash", GGUF, "", {"windows": (17, 17)}),
    ("nemotron-dflash", PLAIN, "", {}),
    ("nemotron-dflash", PLAIN, "gguf.", {"tied": True}),
    ("nemotron-dflash", GGUF, "gguf.", {}),
    ("nemotron-dflash", GGUF, "", {"tied": False}),
    ("nemotron-dspark", PLAIN, "", {}),
    ("nemotron-dspark", PLAIN, "gguf.", {"tied": True}),
    ("nemotron-dspark", GGUF, "gguf.", {}),
    ("nemotron-dspark", GGUF, "", {"tied": False}),
]
"""Folder, file, outputs, and fields of the head that differ from what the dialect says."""
PAIRS = ["eagle3-angelslim", "eagle3-automodel", "eagle3-modelopt", "eagle3-specforge", "eagle3-speculators-0.9"]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@cache
def target_of(name: str, kernels: str):
    """The target of a folder."""
    options = {"dtype": "float32", "cache_dtype": "float32", "device": "cpu", "kernels": kernels}
    return load(golden(name) / GGUF, **options)


def bound(logits: torch.Tensor) -> float:
    """Of logits: larger ones are rounded more coarsely."""
    return TOLERANCE * max(1.0, float(logits.abs().max()) / 8)


def cases(folder: str):
    """Tensors of each context, by their names without it."""
    stored = load_file(golden(folder) / "golden.safetensors")
    for case in ("ctx20.", "ctx33."):
        yield {key.replace(case, ""): value for key, value in stored.items() if case in key}


def open_as(path: Path, target, **changes):
    """A head as it is read for a target, with other fields."""
    file = load(path, weights=False).fit_to(target)
    file.head = attrs.evolve(file.head, **changes)
    return file


def check_block(file, target, of, prefix: str) -> None:
    """States, base logits, logits and tokens of a block after the golden features."""
    expected = {
        **of,
        **{key.removeprefix(prefix): value for key, value in of.items() if prefix and key.startswith(prefix)},
    }
    trunk = executor_of(target)
    layers, sequential = Layers(file, trunk), sequential_part(file, trunk)
    context = layers.context()
    context.take(0, of["features"])
    layers.learn([context])
    context.token = before = int(of["id_last"])
    (rows,), (states,) = layers.blocks([context], [layers.longest])
    tokens, logits = [], []
    read = sequential.read_block(rows, states, context.feature)
    for row, state in zip(rows, read, strict=True):
        [after] = sequential.follow([(before, row, state)])
        before = int(after.logits.argmax())
        tokens.append(before)
        logits.append(after.logits)

    assert tokens == expected["draft_tokens"].tolist()
    known = expected["pre_injection" if file.head.transfer else "block_hidden"]
    assert (states - known[-len(states) :]).abs().max() <= TOLERANCE
    if "draft_scores" in expected:
        scores = torch.stack(logits).gather(1, expected["candidate_ids"])
        assert (scores - expected["draft_scores"]).abs().max() <= bound(expected["draft_scores"])
        assert (torch.stack(logits) > -torch.inf).sum() == scores.numel()
        check_pairs(sequential, rows, read, expected)
    else:
        assert (torch.stack(logits) - expected["draft_logits"]).abs().max() <= bound(expected["draft_logits"])
    if not prefix and "base_logits" in expected:
        assert (rows - expected["base_logits"]).abs().max() <= bound(expected["base_logits"])


def check_pairs(sequential, rows, read, expected) -> None:
    """Scores of every candidate after every candidate of the row before."""
    candidates, last = expected["candidate_ids"], int(expected["id_last"])
    before = torch.cat([torch.full_like(candidates[:1], last), candidates[:-1]])
    if "pair_scores" in expected:
        known = torch.cat([expected["start_scores"].expand_as(expected["pair_scores"][:1]), expected["pair_scores"]])
    else:
        known = expected["transition_scores"]
    for slot, (row, state) in enumerate(zip(rows, read, strict=True)):
        after = sequential.follow([(token, row, state) for token in before[slot].tolist()])
        scores = torch.stack([one.logits for one in after])[:, candidates[slot]]
        assert (scores - known[slot]).abs().max() <= bound(known)


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize(("folder", "form", "prefix", "changes"), BLOCKS)
def test_a_block_is_that_of_its_trainer(folder, form, prefix, changes, kernels):
    path = golden(f"heads-2026/{folder}")
    target = target_of(json.loads((path / "golden.json").read_text())["target"], kernels)
    file = open_as(path / form, target, **changes)

    for of in cases(f"heads-2026/{folder}"):
        check_block(file, target, of, prefix)


def check_chain(file, target, of, prefix: str = "") -> None:
    """Five steps of a head of pairs after the golden features."""
    expected = {
        **of,
        **{key.removeprefix(prefix): value for key, value in of.items() if prefix and key.startswith(prefix)},
    }
    layer = Layer(file, executor_of(target))
    memory = layer.memory()
    memory.take(0, [*of["tokens"].tolist()[1:], int(of["id_last"])], layer.features(features_of(of, file.head)), {})
    hidden, rows = layer.forward([memory.pairs()])
    tokens = []
    ids = tokens_of(file.head, "cpu")
    for i, (state, logits) in enumerate(zip(expected["draft_hidden"], expected["draft_logits"], strict=True), 1):
        assert (hidden[0] - state).abs().max() <= TOLERANCE
        assert (rows[0] - logits).abs().max() <= bound(logits)
        tokens.append(int(spread_logits(rows, ids, file.head.vocab)[0].argmax()))
        hidden, rows = layer.forward([memory.own(i, tokens[-1], hidden)])

    assert tokens == expected["draft_tokens"].tolist()


def features_of(of, head):
    return [part.contiguous() for part in of["features"].chunk(head.inputs, -1)]


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize(
    ("folder", "prefix"), [*((name, "") for name in PAIRS), ("eagle3-modelopt", "modelopt_module.")]
)
def test_a_head_of_pairs_is_that_of_its_trainer(folder, prefix, kernels):
    """Every layout with the layer ids of the vectors; two of them name none."""
    path, target = golden(f"heads-2026/{folder}"), target_of("llama", kernels)
    ids = json.loads((path / "golden.json").read_text())["aux_layer_ids"]
    passed = ",".join(map(str, ids))
    file = load(path / PLAIN, weights=False)
    named = folder not in ("eagle3-angelslim", "eagle3-automodel")

    assert file.head.sources(5, passed) == tuple(ids)
    assert (file.misfit(target) is None) == named
    assert not named or file.head.sources(5) == tuple(ids)
    file = file.fit_to(target, passed)
    file.head = attrs.evolve(file.head, norm_twice=bool(prefix))
    for of in cases(f"heads-2026/{folder}"):
        check_chain(file, target, of, prefix)


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("flag", [True, False])
def test_the_embedding_of_a_tied_head_on_gemma4_makes_its_logits(flag, kernels, tmp_path):
    """Without an output matrix the dialect decides, whatever the flag says: its own table, not the target's."""
    target = target_of("gemma4-k", kernels)
    table = load_file(golden("dspark/gemma4-k") / "hf" / "model.safetensors")["lm_head.weight"]
    files = {}
    for name in ("whole", "tied"):
        path = tmp_path / name
        path.mkdir()
        for part in ("config.json", "model.safetensors"):
            (path / part).write_bytes((golden("dspark/gemma4-k") / "hf" / part).read_bytes())
        edit_config(path, lambda raw: raw.update(tie_word_embeddings=flag))
        edit_tensors(path, lambda named: named.update({"embed_tokens.weight": table.clone()}))
        files[name] = path
    edit_tensors(files["tied"], lambda named: named.pop("lm_head.weight"))
    whole, tied = (open_as(path, target) for path in files.values())

    assert tied.head.tied and not whole.head.tied
    assert "its own embedding" in tied.head.description
    trunk = executor_of(target)
    for of in cases("dspark/gemma4-k"):
        drafts = []
        for file in (whole, tied):
            layers = Layers(file, trunk)
            context = layers.context()
            context.take(0, of["features"])
            layers.learn([context])
            context.token = int(of["id_last"])
            drafts.append(layers.blocks([context], [layers.longest])[0][0])
        assert torch.equal(*drafts)
