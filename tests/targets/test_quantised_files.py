"""Files with blocks of weights: native kernels are near the reference, and drafts change no text.

Of families whose blocks have other operations than attention with its own keys: short convolutions, latents, and blocks
of different sizes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import attrs
import pytest
import torch
from spec_kernels import native
from spec_kernels.model.shapes import ConvShape, DeltaShape, Experts, IndexShape, LatentShape, StreamShape
from spec_targets.architectures.config import Config

from spec_core import Run, Target, load
from tests.native.programs import FAR
from tests.targets.convolved import ENDS
from tests.targets.drive import fresh
from tests.targets.one_type import Keys, write

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
TOKENS = [7 * i * i % 60 for i in range(40)]
KINDS = ("Q8_0", "Q4_K", "Q6_K")


def common_keys(c: Config) -> Keys:
    """Metadata of all families."""
    return {
        "block_count": c.layers,
        "context_length": c.context,
        "embedding_length": c.width,
        "attention.head_count": c.heads,
        "attention.layer_norm_rms_epsilon": c.eps,
    }


DENSE = Config(
    arch="lfm2",
    name="random",
    layers=3,
    width=256,
    heads=4,
    kv_heads=2,
    head=64,
    ff=256,
    vocab=64,
    context=128,
    eps=1e-5,
    rope_base=1e6,
    rotary_dim=64,
    conv=ConvShape(256, 3),
    recurrent=frozenset({0, 2}),
)
CONVOLVED = {
    "lfm2": DENSE,
    "lfm2moe": attrs.evolve(DENSE, arch="lfm2moe", experts=Experts(4, 2, sigmoid=True), expert_ff=256, dense=1),
}
FINAL_NORM = {"output_norm.weight": ENDS["model.embedding_norm.weight"]}


def convolved_keys(c: Config) -> Keys:
    keys: Keys = {
        **common_keys(c),
        "feed_forward_length": c.ff,
        "attention.head_count_kv": [0 if i in c.recurrent else c.kv_heads for i in range(c.layers)],
        "rope.freq_base": c.rope_base,
        "shortconv.l_cache": 3,
    }
    if c.experts is None:
        return keys
    more = {"expert_count": c.experts.count, "expert_used_count": c.experts.used, "expert_gating_func": 2}
    return keys | more | {"expert_feed_forward_length": c.expert_ff, "leading_dense_block_count": c.dense}


LATENT = LatentShape(rank=256, shared=64, plain=256, value=128)
LATENTS = Config(
    arch="kimi-linear",
    name="random",
    layers=3,
    unrotated=True,
    width=256,
    heads=2,
    kv_heads=1,
    head=320,
    ff=256,
    vocab=64,
    context=128,
    eps=1e-5,
    rope_base=1e4,
    rotary_dim=64,
    delta=DeltaShape(2, 2, 256, 256, 4, by_channel=True),
    latent=LATENT,
    inner_eps=1e-5,
    recurrent=frozenset({0, 2}),
    experts=Experts(4, 2, sigmoid=True),
    expert_ff=256,
    shared_ff=256,
    dense=1,
)
LATENT_KEYS: Keys = {
    **common_keys(LATENTS),
    "feed_forward_length": LATENTS.ff,
    "attention.head_count_kv": [0, 1, 0],
    "attention.key_length": LATENTS.head,
    "attention.kv_lora_rank": LATENT.rank,
    "attention.key_length_mla": LATENT.key,
    "attention.value_length_mla": LATENT.value,
    "rope.dimension_count": LATENT.shared,
    "kda.head_dim": 256,
    "ssm.conv_kernel": 4,
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_gating_func": 2,
    "expert_feed_forward_length": 256,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
}
ROTATED = attrs.evolve(
    LATENTS,
    arch="deepseek2",
    unrotated=False,
    delta=None,
    recurrent=frozenset(),
    latent=replace(LATENT, queries=256),
)
ROTATED_KEYS: Keys = {key: value for key, value in LATENT_KEYS.items() if key[:3] not in ("kda", "ssm")} | {
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 256,
}
STREAMED = attrs.evolve(
    LATENTS,
    arch="glm5-next",
    head=256,
    rotary_dim=0,
    latent=LatentShape(rank=256, shared=0, plain=256, value=128, queries=256),
    floor=-5.0,
    index=IndexShape(heads=8, dim=32, pool=4, used=4),
    indexing=frozenset({1}),
    streams=StreamShape(count=4, eps=1e-6, rounds=20),
    limits=(0.5,) * 3,
    shared_limits=(0.5,) * 3,
)
STREAMED_KEYS: Keys = LATENT_KEYS | {
    "attention.key_length": 256,
    "attention.key_length_mla": 256,
    "attention.q_lora_rank": 256,
    "rope.dimension_count": 0,
    "kda.gate_lower_bound": -5.0,
    "attention.indexer.head_count": 8,
    "attention.indexer.key_length": 32,
    "attention.indexer.kpool": 4,
    "attention.indexer.top_k": 16,
    "hyper_connection.count": 4,
    "hyper_connection.epsilon": 1e-6,
    "hyper_connection.sinkhorn_iterations": 20,
    "swiglu_clamp_exp": [0.5] * 3,
    "swiglu_clamp_shexp": [0.5] * 3,
}
SHARING = Config(
    arch="gemma4",
    name="random",
    layers=4,
    width=256,
    heads=4,
    kv_heads=2,
    head=128,
    ff=256,
    vocab=64,
    context=128,
    eps=2.0**-20,
    rope_base=1e6,
    rotary_dim=128,
    scale=1.0,
    windows=(9, 0, 9, 0),
    local_base=1e4,
    local_head=64,
    local_kv_heads=2,
    sharing=2,
    ffs=(256, 256, 512, 512),
    per_layer=256,
    embed_scale=16.0,
)
LAYERED = {
    "own embeddings": SHARING,
    "experts": attrs.evolve(
        SHARING, sharing=0, per_layer=0, ffs=(256,) * 4, kv_heads=1, experts=Experts(4, 2), expert_ff=256
    ),
}
DIVISORS = {"rope_freqs.weight": torch.tensor([1.0] * 16 + [1e30] * 48)}
"""A quarter of the pairs turns."""


def layered_keys(c: Config) -> Keys:
    keys: Keys = {
        **common_keys(c),
        "feed_forward_length": list(c.ffs),
        "attention.head_count_kv": [c.heads_of(i).kv_heads for i in range(c.layers)],
        "attention.key_length": c.head,
        "attention.key_length_swa": c.local_head,
        "attention.sliding_window": max(c.windows),
        "attention.sliding_window_pattern": [window > 0 for window in c.windows],
        "attention.shared_kv_layers": c.sharing,
        "embedding_length_per_layer_input": c.per_layer,
        "rope.freq_base": c.rope_base,
        "rope.freq_base_swa": c.local_base,
    }
    if c.experts is None:
        return keys
    more = {"expert_count": c.experts.count, "expert_used_count": c.experts.used}
    return {**keys, **more, "expert_feed_forward_length": c.expert_ff}


FILES = {
    "kimi-linear": (LATENTS, LATENT_KEYS),
    "deepseek2": (ROTATED, ROTATED_KEYS),
    "glm5-next": (STREAMED, STREAMED_KEYS),
}


def check_file_of_blocks(file: Path, kind: str, matrices: int) -> Target:
    """Assert that logits are near the reference's, and that drafts change no text. matrices: min count."""
    options = {"activations": "int15", "cache_dtype": "float32"}
    target, exact = load(file, kernels="native", **options), load(file, kernels="reference")
    ours, theirs = (fresh(of, TOKENS).logits for of in (target, exact))
    plain = Run(target).generate(TOKENS, max_tokens=24, ignore_eos=True).result.tokens

    assert target.info.types[kind] >= matrices
    assert (ours - theirs).square().mean().sqrt() <= FAR * (theirs.max() - theirs.min())
    for method in (("ngram", {"n_min": 1, "p_min": 0.0}), ("recycling", {"p_min": 0.0, "draft_max": 3})):
        result = Run(target, [method]).generate(TOKENS, max_tokens=24, ignore_eos=True).result
        assert result.tokens == plain
        assert result.stats["drafted"] > 0
    return target


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arch", CONVOLVED)
def test_a_file_of_short_convolutions(arch, kind, tmp_path):
    config = CONVOLVED[arch]
    check_file_of_blocks(write(config, convolved_keys(config), kind, tmp_path / "m.gguf", FINAL_NORM), kind, 18)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arch", FILES)
def test_a_file_of_latents(arch, kind, tmp_path):
    check_file_of_blocks(write(*FILES[arch], kind, tmp_path / "m.gguf"), kind, 30)


@pytest.mark.parametrize("kind", ["Q4_0", *KINDS])
@pytest.mark.parametrize("name", LAYERED)
def test_a_file_of_blocks_of_different_sizes(name, kind, tmp_path):
    config = LAYERED[name]
    file = write(config, layered_keys(config), kind, tmp_path / "m.gguf", more=DIVISORS)

    target = check_file_of_blocks(file, kind, 24)

    assert attrs.evolve(target.config, name="", expert_ff=0) == attrs.evolve(config, name="", expert_ff=0)
    assert target.config.expert_ff == config.expert_ff or config.experts is None
