"""DFlash heads against the original implementation, and what they do in a run."""

from __future__ import annotations

import attrs
import pytest
import torch
from spec_methods.block_drafters.dflash import DFlash
from spec_methods.block_drafters.layers import Layers
from spec_train.heads.dflash import DFlash as Trainable
from spec_train.heads.export.trained import Trained
from spec_train.heads.export.write import write_head
from spec_train.heads.module import rope_frequencies
from spec_train.heads.shape import Shape

from spec_core import load
from spec_core.testing import DrafterConformance
from tests.methods.drafted import draft_file
from tests.methods.heads import head_file
from tests.support.golden import golden
from tests.support.small_heads import train
from tests.support.small_models import tiny_gguf, tiny_hybrid


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def test_the_speculators_form_of_a_published_head_drafts_the_same(tmp_path):
    file, target = load(golden("dflash/qwen3") / "hf", weights=False), golden("qwen3") / "model-f32.gguf"
    head, weights = file.head, {n: file.tensor(n) for n in file.names}
    described = load(target, weights=False)
    shape = Shape.of(head, head.sources(described.info.layers))
    write_head(Trained(shape, weights, None, head.name), described, tmp_path / "other", "speculators", "f32")
    tokens, out = [5, 9, 2, 77, 31, 8], tmp_path / "draft.safetensors"

    one, other = (
        draft_file(target, f"dflash={path}", tokens, 7, "auto", out)
        for path in (golden("dflash/qwen3") / "hf", tmp_path / "other")
    )

    assert load(tmp_path / "other", weights=False).head.producer == "speculators"
    assert len(one["tokens"]) == 7
    assert torch.equal(one["tokens"], other["tokens"])
    assert torch.equal(one["logits"], other["logits"])


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("causal", [(False, False), (True, True), (False, True)])
def test_windows_and_causal_layers_are_those_that_were_trained(causal, kernels, tmp_path):
    """The differentiable head's logits, where a window ends inside the context and inside the block."""
    torch.manual_seed(0)
    target = load(tiny_gguf(0, layers=4), dtype="float32", cache_dtype="float32", device="cpu", kernels=kernels)
    trained_head = train("dflash", target, windows=(3, 6), causal=causal)
    tokens, states = [5, 9, 2, 77, 31, 8, 4, 1, 60, 12, 3], torch.randn(10, 2, 32)
    features = states.flatten(1)
    oracle = Trainable(trained_head.shape, trained_head.weights, rope_frequencies(trained_head.shape))
    table = target.tensor("token_embd.weight").float()
    block = table[torch.tensor([tokens[-1], 299, 299, 299])]
    with torch.no_grad():
        hidden = oracle.blocks(block[None], oracle.fuse(features), torch.tensor([10]))[0, 1:]

    write_head(trained_head, target, tmp_path / "head.gguf", "gguf", "f32")
    file = load(tmp_path / "head.gguf", weights=False)
    file.head = attrs.evolve(file.head, windows=(3, 6), causal=causal)
    head = Layers(file, target.executor)
    context = head.context()
    context.take(0, features)
    head.learn([context])
    context.token = tokens[-1]
    (rows,), _ = head.blocks([context], [3])

    expected = hidden @ table.T
    assert (rows - expected).abs().max() <= 5e-5 * (expected.max() - expected.min())


class TestDFlash(DrafterConformance):
    def make(self):
        return DFlash(file=str(head_file("dflash", "hybrid", 120)), p_min=0.0, draft_max=2)

    def target(self):
        return load(tiny_hybrid(context=2048), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]
