"""Files of Gemma 4 with blocks of weights: native kernels are near the reference, and drafts change no text."""

from __future__ import annotations

import attrs
import pytest
import torch
from spec_kernels import native
from spec_kernels.model.shapes import Experts
from spec_targets.architectures.config import Config

from spec_core import Run, load
from tests.native.programs import FAR
from tests.targets.drive import fresh
from tests.targets.one_type import Keys, write

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
TOKENS = [7 * i * i % 60 for i in range(40)]
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
MODELS = {
    "own embeddings": SHARING,
    "experts": attrs.evolve(
        SHARING, sharing=0, per_layer=0, ffs=(256,) * 4, kv_heads=1, experts=Experts(4, 2), expert_ff=256
    ),
}
DIVISORS = {"rope_freqs.weight": torch.tensor([1.0] * 16 + [1e30] * 48)}
"""A quarter of the pairs turns."""


def keys_of(c: Config) -> Keys:
    keys: Keys = {
        "block_count": c.layers,
        "context_length": c.context,
        "embedding_length": c.width,
        "feed_forward_length": list(c.ffs),
        "attention.head_count": c.heads,
        "attention.head_count_kv": [c.heads_of(i).kv_heads for i in range(c.layers)],
        "attention.key_length": c.head,
        "attention.key_length_swa": c.local_head,
        "attention.layer_norm_rms_epsilon": c.eps,
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


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_blocks_is_near_the_reference_and_drafts_change_no_text(name, kind, tmp_path):
    config = MODELS[name]
    file = write(config, keys_of(config), kind, tmp_path / "m.gguf", more=DIVISORS)
    options = {"activations": "int15", "cache_dtype": "float32"}
    target, exact = load(file, kernels="native", **options), load(file, kernels="reference")
    ours, theirs = (fresh(of, TOKENS).logits for of in (target, exact))
    plain = Run(target).generate(TOKENS, max_tokens=24, ignore_eos=True).result.tokens

    assert target.info.types[kind] >= 24
    assert attrs.evolve(target.config, name="", expert_ff=0) == attrs.evolve(config, name="", expert_ff=0)
    assert target.config.expert_ff == config.expert_ff or config.experts is None
    assert (ours - theirs).square().mean().sqrt() <= FAR * (theirs.max() - theirs.min())
    for method in (("ngram", {"n_min": 1, "p_min": 0.0}), ("recycling", {"p_min": 0.0, "draft_max": 3})):
        run = Run(target, [method])
        result = run.generate(TOKENS, max_tokens=24, ignore_eos=True).result
        assert result.tokens == plain
        assert result.stats["drafted"] > 0
