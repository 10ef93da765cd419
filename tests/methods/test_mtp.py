"""The NextN layer against independent implementations, and what it does in a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from safetensors.torch import load_file
from spec_cli.draft import drafted_by
from spec_methods.mtp import Mtp
from spec_targets.runtime.next_token import NextnLayer

from spec_core import Request, Run, Sampling, load
from spec_core.errors import Refused, UsageError
from spec_core.toolkit import NextTokenLayer
from spec_core.toolkit.pair_drafter import BACKLOG
from tests.support.golden import golden
from tests.support.small_models import tiny_hybrid

ARCHS = ("qwen3next", "qwen35", "qwen35moe", "glm4moe")
NEMOTRON = "nemotron-h-moe"
"""Its layer's last norm is read in two ways: GGUF files are llama.cpp's."""
FILES = ("model-f32.gguf", "hf")
LATENT = [("glm4moelite", "model-f32.gguf"), ("glm4moelite", "hf"), ("deepseek3", "hf")]
"""The file of deepseek3 has no layer. That of glm4moelite is read with llama.cpp's eps in the norms of latents."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def hybrid():
    return load(tiny_hybrid(context=128), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]


def drafts(target, method, tokens: list[int], n: int) -> tuple[list[int], torch.Tensor]:
    """Drafts as in ``spec draft``: through the hooks of a run, with hidden states of the target's own forward."""
    return drafted_by(Run(target, [method], draft_max=n), tokens, n)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
def test_draft_tokens_and_logits_in_a_run(arch, file, context):
    expected = load_file(golden(f"mtp/{arch}") / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    target = load(golden(arch) / file, cache_dtype="float32")
    ids, rows = drafts(target, ("mtp", {"draft_max": 5, "p_min": 0.0}), tokens, 5)
    assert ids == expected[f"{context}.draft_tokens"].tolist()
    assert (rows - expected[f"{context}.draft_logits"]).abs().max() < 5e-5


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize(("arch", "file"), LATENT)
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
def test_a_layer_with_latents_drafts_as_the_engine_that_reads_its_eps(arch, file, context, kernels):
    expected = load_file(golden(f"mtp/{arch}") / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    reading = context if file == "hf" else f"{context}.gguf"
    ids, rows = drafts(
        load(golden(arch) / file, cache_dtype="float32", kernels=kernels),
        ("mtp", {"draft_max": 5, "p_min": 0.0}),
        tokens,
        5,
    )
    assert ids == expected[f"{reading}.draft_tokens"].tolist()
    assert (rows - expected[f"{reading}.draft_logits"]).abs().max() < 5e-5


@pytest.mark.parametrize("last_norm", ["auto", "rms", "layer"])
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
def test_both_readings_of_a_last_norm_draft_as_their_engines(file, context, last_norm):
    expected = load_file(golden(f"mtp/{NEMOTRON}") / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    target = load(golden(NEMOTRON) / file, cache_dtype="float32")
    ids, rows = drafts(target, ("mtp", {"draft_max": 5, "p_min": 0.0, "last_norm": last_norm}), tokens, 5)
    layer = last_norm == "layer" or (last_norm == "auto" and file != "hf")
    reading = f"{context}.gguf." if layer else f"{context}."
    assert ids == expected[f"{reading}draft_tokens"].tolist()
    assert (rows - expected[f"{reading}draft_logits"]).abs().max() < 5e-5


@pytest.mark.parametrize(
    ("file", "last_norm", "message"),
    [
        ("hf", "auto", "last norm: RMSNorm, as in vLLM; engines differ, the other reading is last_norm=layer"),
        (
            "model-f32.gguf",
            "auto",
            "last norm: LayerNorm, as in llama.cpp; engines differ, the other reading is last_norm=rms",
        ),
        (
            "model-f32.gguf",
            "rms",
            "last norm: RMSNorm, as in vLLM; engines differ, the other reading is last_norm=layer",
        ),
    ],
)
def test_compat_says_how_the_last_norm_is_read(file, last_norm, message):
    target = load(golden(NEMOTRON) / file, weights=False)
    assert list(Mtp(last_norm=last_norm).compat(target).notes) == [message]


def test_a_last_norm_that_all_engines_read_alike_has_no_other_reading(hybrid):
    assert not Mtp().compat(hybrid).notes
    with pytest.raises(Refused, match=r"last_norm=layer: the last norm of .* is read as rms by all engines"):
        Run(hybrid, [("mtp", {"last_norm": "layer"})])


@pytest.mark.parametrize("arch", ["qwen35", "glm4moe", NEMOTRON, "glm4moelite"])
def test_a_layer_in_its_own_file_drafts_the_same(arch):
    target, tokens = load(golden(arch) / "model-f32.gguf"), [5, 9, 2, 77, 31, 8]
    own = drafts(target, ("mtp", {"p_min": 0.0}), tokens, 4)
    apart = drafts(target, ("mtp", {"p_min": 0.0, "file": str(golden(f"mtp/{arch}") / "mtp-only-f32.gguf")}), tokens, 4)
    assert own[0] == apart[0]
    assert torch.equal(own[1], apart[1])


def test_a_file_with_the_layer_alone_is_no_target():
    with pytest.raises(UsageError, match="it has no trunk"):
        load(golden("mtp/qwen35") / "mtp-only-f32.gguf")


@pytest.mark.parametrize("strategy", ["snapshot", "replay", "checkpoint"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("slots", [1, 5])
def test_text_is_plain_and_forwards_are_counted(hybrid, strategy, temperature, slots):
    requests = [
        Request([3 * i + 1, 4, i + 9], max_tokens=24, seed=i, sampling=Sampling(temperature=temperature), name=f"{i}")
        for i in range(5)
    ]
    plain = [Run(hybrid).generate(r).result.tokens for r in requests]
    run = Run(hybrid, [("mtp", {"p_min": 0.0})], rollback=("gdn-rollback", {"strategy": strategy}), max_sequences=slots)
    steps = []
    run.observe(steps.append)
    seqs = [run.submit(r) for r in requests]
    while run.busy:
        run.step()
    assert [run.take(seq).tokens for seq in seqs] == plain
    longest = [max((p.drafted for p in step.parts), default=0) for step in steps]
    assert all(step.forwards.get("mtp", 0) == k for step, k in zip(steps, longest, strict=True))
    assert all(step.forwards["target"] == 1 for step in steps)
    assert max(longest) == 4


def test_a_long_prompt_is_caught_up_in_pieces(hybrid):
    prompt = [(11 * i) % 299 for i in range(2 * BACKLOG + 30)]
    target = load(tiny_hybrid(context=1024))
    whole = drafts(target, ("mtp", {"p_min": 0.0}), prompt, 3)
    chunked = drafted_by(Run(target, [("mtp", {"p_min": 0.0})], draft_max=3, prefill_chunk=50), prompt, 3)
    assert whole[0] == chunked[0]
    assert (whole[1] - chunked[1]).abs().max() < 1e-4


def test_a_model_without_the_layer_is_refused_before_its_weights_are_read():
    bare = load(tiny_hybrid(mtp=False), weights=False)
    with pytest.raises(Refused, match="has no NextN layer"):
        Run(bare, ["mtp"])


def test_a_layer_of_a_stranger_needs_no_readings_of_its_last_norm():
    """A layer with the attributes of the protocol alone; the method reads no other."""
    bare = load(tiny_hybrid(), weights=False)
    needed = ("problem", "names", "source", "heads", "deeper", "operations", "rotation")
    bare.next_token_layer = SimpleNamespace(**{name: getattr(bare.next_token_layer, name) for name in needed})

    assert set(needed) == {name for name in dir(NextTokenLayer) if not name.startswith("_")}
    assert not Mtp().compat(bare).refusals


@attrs.define
class Damaged:
    """Weights in which one tensor has another shape, or is missing."""

    whole: Any
    name: str
    found: tuple[int, ...] | None

    @property
    def where(self):
        return self.whole.where

    @property
    def interleaved(self):
        return self.whole.interleaved

    def shape(self, name):
        return self.found if name == self.name else self.whole.shape(name)


@pytest.mark.parametrize("value", [None, (32, 32)], ids=["missing", "shape"])
@pytest.mark.parametrize("tensor", ["nextn.eh_proj.weight", "nextn.hnorm.weight", "attn_q.weight", "ffn_up.weight"])
def test_a_damaged_layer_is_refused_by_the_name_of_its_tensor(monkeypatch, tensor, value):
    bare = load(tiny_hybrid(), weights=False)
    bare.next_token_layer = NextnLayer.of(bare.config, Damaged(bare.weights, f"blk.4.{tensor}", value), None, 0)
    with pytest.raises(Refused, match=f"'blk.4.{tensor}' of the NextN layer is") as refused:
        Run(bare, ["mtp"])
    assert "convert the model again" in str(refused.value.hint)
