"""GLM-4.5, 4.6 and 4.7: mixtures of experts that are chosen by sigmoid scores, with a NextN layer."""

from __future__ import annotations

from collections.abc import Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS, EXPERTS, MLP, SHARED
from spec_targets.formats.stored_names import Name

NAMES: dict[str, Name] = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    "nextn.eh_proj.weight": "eh_proj.weight",
    "nextn.enorm.weight": "enorm.weight",
    "nextn.hnorm.weight": "hnorm.weight",
    "nextn.shared_head_norm.weight": "shared_head.norm.weight",
    "nextn.shared_head_head.weight": "shared_head.head.weight",
    "nextn.embed_tokens.weight": "embed_tokens.weight",
}


def from_gguf(keys: Keys) -> Config:
    return keys.decoder(experts=keys.experts(sigmoid=True), shared_ff=keys.shared_ff())


def from_hf(json: ConfigJson) -> Config:
    return json.decoder(
        partial=0.5,
        experts=json.experts(sigmoid=True, normalise=True),
        expert_ff=json.integer("moe_intermediate_size"),
        shared_ff=json.shared_ff(),
    )


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention()
    yield b.norm("x", "h", "post_attention_norm.weight")
    if c.experts is None or i < c.dense:
        yield from b.mlp(c.ff)
    else:
        yield from b.mixture(c.experts, c.expert_ff, c.shared_ff)


GLM4_MOE = Family(
    name="glm4moe",
    classes=("Glm4MoeForCausalLM",),
    model_types=("glm4_moe",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS | ATTENTION | MLP | EXPERTS | SHARED | NAMES,
)
