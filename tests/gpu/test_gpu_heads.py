"""Draft heads on GPU kernels against vectors of the original implementations, in float32."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_cli.draft import drafted_by
from spec_kernels.gpu.executor import Gpu
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_train.heads.export.write import write_head

from spec_core import Run, load
from tests.methods.drafted import TOLERANCE, check_block, check_published
from tests.methods.test_heads_2026 import cases, open_as
from tests.methods.test_heads_2026 import check_block as check_trained_block
from tests.support.golden import golden
from tests.support.small_heads import train
from tests.support.small_models import tiny_gguf

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS = ("eagle3/llama-d2t", "eagle3/qwen3-speculators", "dflash/qwen3", "dspark/qwen3")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", HEADS)
def test_published_heads(name, tmp_path):
    check_published(name, "model-f32.gguf", "ctx20", "gpu", tmp_path / "drafts.safetensors")


@pytest.mark.parametrize("form", ["hf", "model-f32.gguf"])
def test_a_published_head_with_a_selector(form):
    check_block("dflash2/qwen3", form, target_of("qwen3"), TOLERANCE)


@cache
def target_of(name):
    return load(golden(name) / "model-f32.gguf", dtype="float32", device=DEVICE, kernels="gpu")


ANCHORED = {"context_norm": False, "anchored": True}
"""A reading in which windows end at the first row of a block."""


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("folder", "prefix", "changes"),
    [
        ("laguna-dflash", "", {}),
        ("laguna-dflash", "mlx_vlm.", ANCHORED),
        ("dspine", "", {}),
        ("lilicorr", "", {}),
        ("muse-dflash", "", {}),
        ("nemotron-dspark", "", {}),
    ],
)
def test_blocks_of_other_trainers(folder, prefix, changes):
    path = golden(f"heads-2026/{folder}")
    target = target_of(json.loads((path / "golden.json").read_text())["target"])

    for of in cases(f"heads-2026/{folder}"):
        check_trained_block(open_as(path / "hf", target, **changes), target, of, prefix)


def test_outputs_of_a_draft_layer_stay():
    """Its states are kept until later forwards read them."""
    target = load(tiny_gguf(0, layers=2), kernels="reference", device="cpu", threads=1)
    of, device = target.executor, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layer = Gpu(of.model, of.source, torch.float32, device, 300).with_layers(of.model, of.source)
    run = lambda tokens: layer.run(
        ForwardBatch(torch.tensor(tokens), torch.arange(len(tokens)), [SequenceRows(layer.cache(9), 0, len(tokens), 0)])
    )["logits"]
    first = run([1, 2])
    before = first.clone()
    run([3, 4])

    assert torch.equal(first, before)


def test_two_heads_of_one_target_have_weights_of_their_own(tmp_path):
    """Their tensors have equal names and sizes."""
    path, files = tiny_gguf(0, layers=4), []
    reference = load(path, kernels="reference", device="cpu", dtype="float32", threads=1)
    target = load(path, kernels="gpu", device=DEVICE, dtype="float32")
    for seed in (1, 2):
        torch.manual_seed(seed)
        files.append(str(tmp_path / f"{seed}.gguf"))
        write_head(train("eagle3", reference, None), reference, Path(files[-1]), "gguf", "f32")
    draft = lambda of, file: drafted_by(Run(of, [("eagle3", {"file": file, "p_min": 0.0})]), [1, 2, 3], 2)[1]

    for file in files:
        assert (draft(target, file).cpu() - draft(reference, file)).abs().max() < 1e-4
    assert not torch.equal(draft(reference, files[0]), draft(reference, files[1]))
