"""DeepSeek-V2, V3 and R1, and GLM-4.7-Flash: latent attention with rotation, and experts with a shared one.

GGUF files of all of them have this architecture. Experts are chosen by softmax in V2 and by sigmoid scores in the
others, within the best groups of experts in V3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import attrs
from spec_kernels.model.build import Builder
from spec_kernels.model.latent import latent_attention
from spec_kernels.model.ops import Op
from spec_kernels.model.shapes import Experts

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.glm4moe import NAMES as GLM_NAMES
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.latents import FUSED, LATENT_NAMES, feed_forward, latent_in_json, latent_in_keys
from spec_targets.architectures.names import ATTENTION, ENDS, EXPERTS, MLP, SHARED
from spec_targets.architectures.positions import rope_of
from spec_targets.architectures.rope import Scaling, yarn_attention
from spec_targets.architectures.values import read_float
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name

SOFTMAX, SIGMOID = 1, 2
"""``expert_gating_func`` of softmax and of sigmoid scores."""
FLASH_LAYERS, FLASH_VOCAB = (47, 48), 154880
"""Blocks, with the NextN layer and without, and tokens of GLM-4.7-Flash."""
YARN_LOG = 0.1
"""``yarn_log_multiplier`` of a logarithm that counts once."""
V2 = "DeepseekV2ForCausalLM"
NEXTN: dict[str, Name] = {name: where for name, where in GLM_NAMES.items() if name.startswith("nextn.")}
NAMES: dict[str, Name] = NEXTN | {
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
}


def from_gguf(keys: Keys) -> Config:
    more = latent_in_keys(keys, keys.integer("attention.q_lora_rank", 0), older=True)
    experts = keys.experts(sigmoid=_by_sigmoid(keys))
    if experts is not None:
        normalised = keys.get("expert_weights_norm", False, bool)
        experts = _check_groups(replace(experts, normalise=normalised, scale=experts.scale or 1.0), keys.where)
    scaling, weight = keys.scaling(), keys.number("rope.scaling.yarn_log_multiplier", 0.0) / YARN_LOG
    if scaling.kind == "yarn" and weight:
        scaling = attrs.evolve(scaling, attention=scaling.attention / yarn_attention(scaling.factor))
    more |= {"scaling": scaling, "scale": _score_scale(more, scaling, weight)}
    return keys.decoder(experts=experts, shared_ff=keys.shared_ff() if experts else 0, **more)


def _by_sigmoid(keys: Keys) -> bool:
    """Whether experts are chosen by sigmoid scores, also where the file does not say.

    Only sigmoid scores have a bias for the choice; the blocks and tokens are those by which llama.cpp decides.
    """
    function = keys.integer("expert_gating_func", 0)
    if function not in (0, SOFTMAX, SIGMOID):
        raise UsageError(
            f"{keys.where}: {keys.arch}.expert_gating_func is {function}, {SOFTMAX} or {SIGMOID} was needed", hint=AGAIN
        )
    if function:
        return function == SIGMOID
    biased = any(name.endswith(".exp_probs_b.bias") for name in keys.file.tensors)
    table = keys.file.tensors.get("token_embd.weight")
    blocks = keys.integer("block_count")
    return biased or (blocks in FLASH_LAYERS and table is not None and table.shape[:1] == (FLASH_VOCAB,))


def _check_groups(experts: Experts, where: str) -> Experts:
    """Experts whose choice is known. Raises UsageError for groups of softmax scores, which are ranked differently."""
    if experts.groups > 1 and not experts.sigmoid:
        raise UsageError(
            f"{where}: experts are chosen by softmax scores within {experts.groups} groups, which is not supported",
            hint="DeepSeek-V2 is supported where its experts are not in groups, as in V2-Lite",
        )
    return experts


def _score_scale(latent: dict[str, Any], scaling: Scaling, weight: float) -> float:
    """Factor of scores: with yarn it grows with the square of the logarithm of the factor, times ``weight``."""
    if scaling.kind != "yarn" or not weight or not scaling.factor > 0 or latent["latent"].key < 1:
        return 0.0
    return latent["latent"].key ** -0.5 * yarn_attention(scaling.factor, weight) ** 2


def from_hf(json: ConfigJson) -> Config:
    v2 = json.kind == V2 or json.kind == "deepseek_v2"
    json.refuse(
        attention_bias=(None, False),
        rope_interleave=(True, None),
        moe_layer_freq=(1, None),
        scoring_func=("softmax", None) if v2 else ("sigmoid", None),
        topk_method=("greedy", "group_limited_greedy", None) if v2 else ("noaux_tc", None),
    )
    latent = latent_in_json(json, json.integer("q_lora_rank", 0))
    more = latent | {"rotary_dim": latent["latent"].shared, "dense": json.dense_blocks()}
    if json.raw.get("n_routed_experts") or json.raw.get("num_local_experts"):
        experts = json.experts(sigmoid=not v2, normalise=not v2)
        if v2 and json.raw.get("topk_method") in ("greedy", None):
            experts = replace(experts, groups=1, groups_used=1)
        more |= {"experts": _check_groups(experts, json.where), "expert_ff": json.integer("moe_intermediate_size")}
        more |= {"shared_ff": json.shared_ff()}
    config = json.decoder(**more)
    rope = rope_of(json.raw)
    weight = read_float(rope, "mscale_all_dim", json.where) if rope.get("mscale_all_dim") else 0.0
    return attrs.evolve(config, scale=_score_scale(latent, config.scaling, weight))


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    assert c.latent is not None
    yield b.norm("x", "h", "attn_norm.weight")
    yield from latent_attention(b, c.latent, c.inner_eps)
    yield from feed_forward(b, c, i)


DEEPSEEK2 = Family(
    name="deepseek2",
    classes=("DeepseekV3ForCausalLM", V2, "Glm4MoeLiteForCausalLM"),
    model_types=("deepseek_v3", "deepseek_v2", "glm4_moe_lite"),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS | ATTENTION | MLP | EXPERTS | SHARED | LATENT_NAMES | NAMES,
    fused=FUSED,
)
