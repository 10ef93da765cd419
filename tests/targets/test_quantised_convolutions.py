"""Files of LFM2 with blocks: native kernels are near the reference, and drafts change no text."""

from __future__ import annotations

import attrs
import pytest
from spec_kernels import native
from spec_kernels.model.shapes import ConvShape, Experts
from spec_targets.architectures.config import Config

from spec_core import Run, load
from tests.native.programs import FAR
from tests.targets.convolved import ENDS
from tests.targets.drive import fresh
from tests.targets.one_type import write

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
TOKENS = [7 * i * i % 60 for i in range(40)]
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
MODELS = {
    "lfm2": DENSE,
    "lfm2moe": attrs.evolve(DENSE, arch="lfm2moe", experts=Experts(4, 2, sigmoid=True), expert_ff=256, dense=1),
}
FINAL_NORM = {"output_norm.weight": ENDS["model.embedding_norm.weight"]}


def keys_of(c: Config) -> dict[str, int | float | list[int]]:
    keys: dict[str, int | float | list[int]] = {
        "block_count": c.layers,
        "context_length": c.context,
        "embedding_length": c.width,
        "feed_forward_length": c.ff,
        "attention.head_count": c.heads,
        "attention.head_count_kv": [0 if i in c.recurrent else c.kv_heads for i in range(c.layers)],
        "attention.layer_norm_rms_epsilon": c.eps,
        "rope.freq_base": c.rope_base,
        "shortconv.l_cache": 3,
    }
    if c.experts is None:
        return keys
    more = {"expert_count": c.experts.count, "expert_used_count": c.experts.used, "expert_gating_func": 2}
    return keys | more | {"expert_feed_forward_length": c.expert_ff, "leading_dense_block_count": c.dense}


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("arch", MODELS)
def test_a_file_of_blocks_is_near_the_reference_and_drafts_change_no_text(arch, kind, tmp_path):
    config = MODELS[arch]
    file = write(config, keys_of(config), kind, tmp_path / "m.gguf", FINAL_NORM)
    options = {"activations": "int15", "cache_dtype": "float32"}
    target, exact = load(file, kernels="native", **options), load(file, kernels="reference")
    ours, theirs = (fresh(of, TOKENS).logits for of in (target, exact))
    plain = Run(target).generate(TOKENS, max_tokens=24, ignore_eos=True).result.tokens

    assert target.info.types[kind] >= 18
    assert (ours - theirs).square().mean().sqrt() <= FAR * (theirs.max() - theirs.min())
    for method in (("ngram", {"n_min": 1, "p_min": 0.0}), ("recycling", {"p_min": 0.0, "draft_max": 3})):
        run = Run(target, [method])
        result = run.generate(TOKENS, max_tokens=24, ignore_eos=True).result
        assert result.tokens == plain
        assert result.stats["drafted"] > 0
