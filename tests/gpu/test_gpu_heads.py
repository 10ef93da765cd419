"""Draft heads on GPU kernels against vectors of the original implementations, in float32."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.executor import Gpu
from spec_kernels.model.batch import ForwardBatch, SequenceRows

from spec_core import load
from tests.methods.drafted import check_published
from tests.support.small_models import tiny_gguf

HEADS = ("eagle3/llama-d2t", "eagle3/qwen3-speculators", "dflash/qwen3")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", HEADS)
def test_published_heads(name, tmp_path):
    check_published(name, "model-f32.gguf", "ctx20", "gpu", tmp_path / "drafts.safetensors")


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
