"""Files of Kimi Linear, DeepSeek and GLM-5.3-Flash with blocks: near the reference, and drafts change no text."""

from __future__ import annotations

from dataclasses import replace

import attrs
import pytest
from spec_kernels import native
from spec_kernels.model.shapes import DeltaShape, Experts, IndexShape, LatentShape, StreamShape
from spec_targets.architectures.config import Config

from spec_core import Run, load
from tests.native.programs import FAR
from tests.targets.drive import fresh
from tests.targets.one_type import Keys, write

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
TOKENS = [7 * i * i % 60 for i in range(40)]
LATENT = LatentShape(rank=256, shared=64, plain=256, value=128)
CONFIG = Config(
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
KEYS: Keys = {
    "block_count": CONFIG.layers,
    "context_length": CONFIG.context,
    "embedding_length": CONFIG.width,
    "feed_forward_length": CONFIG.ff,
    "attention.head_count": CONFIG.heads,
    "attention.head_count_kv": [0, 1, 0],
    "attention.layer_norm_rms_epsilon": CONFIG.eps,
    "attention.key_length": CONFIG.head,
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
    CONFIG,
    arch="deepseek2",
    unrotated=False,
    delta=None,
    recurrent=frozenset(),
    latent=replace(LATENT, queries=256),
)
ROTATED_KEYS: Keys = {key: value for key, value in KEYS.items() if key[:3] not in ("kda", "ssm")} | {
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 256,
}
STREAMED = attrs.evolve(
    CONFIG,
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
STREAMED_KEYS: Keys = KEYS | {
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
FILES = {
    "kimi-linear": (CONFIG, KEYS),
    "deepseek2": (ROTATED, ROTATED_KEYS),
    "glm5-next": (STREAMED, STREAMED_KEYS),
}


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("arch", FILES)
def test_a_file_of_blocks_is_near_the_reference_and_drafts_change_no_text(arch, kind, tmp_path):
    file = write(*FILES[arch], kind, tmp_path / "m.gguf")
    options = {"activations": "int15", "cache_dtype": "float32"}
    target, exact = load(file, kernels="native", **options), load(file, kernels="reference")
    ours, theirs = (fresh(of, TOKENS).logits for of in (target, exact))
    plain = Run(target).generate(TOKENS, max_tokens=24, ignore_eos=True).result.tokens

    assert target.info.types[kind] >= 30
    assert (ours - theirs).square().mean().sqrt() <= FAR * (theirs.max() - theirs.min())
    for method in (("ngram", {"n_min": 1, "p_min": 0.0}), ("recycling", {"p_min": 0.0, "draft_max": 3})):
        result = Run(target, [method]).generate(TOKENS, max_tokens=24, ignore_eos=True).result
        assert result.tokens == plain
        assert result.stats["drafted"] > 0
