"""Random models of transformers with Mamba-2 layers, of unfriendly sizes: directories as published, and GGUF files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import write

GRANITE, FALCON, NEMOTRON = "granitehybrid", "falcon-h1", "nemotron_h"
FAMILIES = (GRANITE, f"{GRANITE}-dense", FALCON, NEMOTRON, f"{NEMOTRON}_moe", f"{NEMOTRON}_moe-latent")
SCAN, FULL, DENSE, EXPERTS = "linear_attention", "full_attention", "mlp", "moe"
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.embeddings.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.norm_f.weight": "output_norm.weight",
    "model.final_layernorm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
MIXER = {
    "in_proj.weight": "ssm_in.weight",
    "out_proj.weight": "ssm_out.weight",
    "conv1d.weight": "ssm_conv1d.weight",
    "conv1d.bias": "ssm_conv1d.bias",
    "dt_bias": "ssm_dt.bias",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "norm.weight": "ssm_norm.weight",
    "q_proj.weight": "attn_q.weight",
    "k_proj.weight": "attn_k.weight",
    "v_proj.weight": "attn_v.weight",
    "o_proj.weight": "attn_output.weight",
    "up_proj.weight": "ffn_up.weight",
    "down_proj.weight": "ffn_down.weight",
    "gate_proj.weight": "ffn_gate.weight",
    "gate.weight": "ffn_gate_inp.weight",
    "gate.e_score_correction_bias": "exp_probs_b.bias",
    "experts.up_proj": "ffn_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    "fc1_latent_proj.weight": "ffn_latent_down.weight",
    "fc2_latent_proj.weight": "ffn_latent_up.weight",
    "router.weight": "ffn_gate_inp.weight",
}
"""Tensors of a layer, whatever a family calls the layer."""
LAYERS = ("mamba.", "self_attn.", "mixer.", "feed_forward.", "block_sparse_moe.")
NORMS = {
    "input_layernorm.weight": "attn_norm.weight",
    "norm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "pre_ff_layernorm.weight": "ffn_norm",
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model with at least one block of each kind."""
    rng = random.Random(f"{family} {seed}")
    kv_heads, groups, layers = rng.randint(1, 3), rng.randint(1, 3), rng.randint(2, 5)
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": (heads := kv_heads * rng.randint(1, 3)) * rng.choice([6, 10, 12, 20]),
        "intermediate_size": rng.choice([20, 33, 48]),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 256,
        "tie_word_embeddings": rng.random() < 0.5,
    }
    draw = {GRANITE: _granite, FALCON: _falcon, NEMOTRON: _nemotron}[_base(family)]
    return model(family, seed, **sizes | draw(rng, family, sizes, groups, layers))


def _base(family: str) -> str:
    return family.split("_moe")[0].split("-dense")[0]


def _kinds(rng: random.Random, kinds: list[str], layers: int) -> list[str]:
    """At least one block of each kind, in any order."""
    drawn = [*kinds, *rng.choices(kinds, k=max(0, layers - len(kinds)))]
    rng.shuffle(drawn)
    return drawn


def _scan(rng: random.Random, groups: int, heads: int, head: int) -> dict[str, Any]:
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": head,
        "mamba_n_groups": groups,
        "mamba_d_state": rng.choice([6, 16, 24, 40]),
        "mamba_d_conv": rng.randint(2, 5),
        "mamba_chunk_size": rng.choice([8, 16, 32]),
        "mamba_conv_bias": rng.random() < 0.7,
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
    }


def _granite(rng: random.Random, family: str, sizes: dict[str, Any], groups: int, layers: int) -> dict[str, Any]:
    inner = 2 * sizes["hidden_size"]
    heads = rng.choice([n for n in range(1, 9) if inner % n == 0 and n % groups == 0] or [0])
    groups, heads = (groups, heads) if heads else (1, 2)
    experts = 0 if family.endswith("dense") else rng.randint(2, 7)
    kinds = _kinds(rng, [SCAN, FULL], layers)
    return _scan(rng, groups, heads, inner // heads) | {
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "num_local_experts": experts,
        "num_experts_per_tok": rng.randint(1, min(experts, 4)) if experts else 0,
        "shared_intermediate_size": rng.choice([20, 32]),
        "embedding_multiplier": rng.choice([1.0, 1.5]),
        "logits_scaling": rng.choice([1.0, 3.0]),
        "residual_multiplier": rng.choice([1.0, 0.4]),
        "attention_multiplier": rng.choice([0.1, 0.25]),
        "position_embedding_type": rng.choice([None, "nope", "rope"]),
    }


def _falcon(rng: random.Random, family: str, sizes: dict[str, Any], groups: int, layers: int) -> dict[str, Any]:
    heads, head = groups * rng.randint(1, 3), rng.choice([5, 8, 12, 20])
    factor = lambda: rng.choice([1.0, 0.75, 1.25])
    return _scan(rng, groups, heads, head) | {
        "num_hidden_layers": layers,
        "mamba_d_ssm": heads * head,
        "mamba_rms_norm": rng.random() < 0.5,
        "mamba_norm_before_gate": False,
        "head_dim": sizes["hidden_size"] // sizes["num_attention_heads"],
        "mlp_multipliers": [factor() for _ in range(2)],
        "ssm_multipliers": [factor() for _ in range(5)],
        **{f"{name}_multiplier": factor() for name in ("key", "ssm_in", "ssm_out", "attention_in", "attention_out")},
        **{f"{name}_multiplier": factor() for name in ("lm_head", "embedding")},
    }


def _nemotron(rng: random.Random, family: str, sizes: dict[str, Any], groups: int, layers: int) -> dict[str, Any]:
    moe, experts = "_moe" in family, rng.randint(2, 7)
    scan = _scan(rng, groups, groups * rng.randint(1, 3), rng.choice([5, 8, 12, 20]))
    return {
        "layers_block_type": _kinds(rng, [SCAN, FULL, EXPERTS if moe else DENSE], layers),
        "head_dim": rng.choice([6, 8, 12]),
        "mamba_num_heads": scan["mamba_n_heads"],
        "mamba_head_dim": scan["mamba_d_head"],
        "n_groups": groups,
        "ssm_state_size": scan["mamba_d_state"],
        "conv_kernel": scan["mamba_d_conv"],
        "chunk_size": scan["mamba_chunk_size"],
        "use_conv_bias": scan["mamba_conv_bias"],
        "layer_norm_epsilon": scan["rms_norm_eps"],
        "time_step_min": 1e-30,
        "n_routed_experts": experts,
        "num_experts_per_tok": rng.randint(1, min(experts, 4)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "moe_shared_expert_intermediate_size": rng.choice([20, 24]),
        "moe_latent_size": rng.choice([10, 16]) if family.endswith("latent") else None,
        "routed_scaling_factor": rng.choice([1.0, 2.5]),
    }


def write_gguf(
    network: PreTrainedModel,
    family: str,
    path: Path,
    kind: str = "F32",
    tokenizer: str | None = None,
    nextn: bool = False,
) -> Path:
    """The file that llama.cpp's converter makes of a model. kind, tokenizer: see ``write``. nextn: of Nemotron with
    experts: with a random block that predicts further."""
    tensors: dict[str, Tensor] = {}
    shared = _base(family) != FALCON and network.lm_head.weight is network.get_input_embeddings().weight
    for name, value in network.state_dict().items():
        if name != "lm_head.weight" or not shared:
            tensors |= _tensors(network, family, name, value.clone())
    keys = _keys(network, family)
    if nextn:
        keys, tensors = _predicting(network.config, keys, tensors)
    return write(path, family.removesuffix("-dense").removesuffix("-latent"), keys, tensors, kind, tokenizer)


def _predicting(c: Any, keys: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The keys and tensors with a block after the trunk, of attention and experts."""
    layers, width = keys["block_count"], c.hidden_size
    keys = keys | {"block_count": layers + 1, "nextn_predict_layers": 1}
    keys["attention.head_count_kv"] = [*keys["attention.head_count_kv"], c.num_key_value_heads]
    keys["feed_forward_length"] = [*keys["feed_forward_length"], c.moe_intermediate_size]
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    matrices = {"attn_q": (q, width), "attn_k": (kv, width), "attn_v": (kv, width), "attn_output": (width, q)}
    matrices["nextn.eh_proj"] = (width, 2 * width)
    norms = ("attn_norm", "post_attention_norm", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")
    numbers, stem = torch.Generator().manual_seed(0), f"blk.{layers}."
    own = {f"{stem}{name}.weight": torch.randn(shape, generator=numbers) / 5 for name, shape in matrices.items()}
    own |= {f"{stem}{name}.weight": 0.5 + torch.rand(width, generator=numbers) for name in norms}
    block = next(name.split(".")[1] for name in tensors if name.endswith("ffn_gate_inp.weight"))
    experts = {f"{stem}{name.split('.', 2)[2]}": m for name, m in tensors.items() if name.startswith(f"blk.{block}.")}
    return keys, tensors | experts | own


def _tensors(network: PreTrainedModel, family: str, name: str, value: Tensor) -> dict[str, Tensor]:
    """The tensors of a file that a tensor of a checkpoint becomes."""
    c, base = network.config, _base(family)
    if name in WHOLE:
        factors = {"embed": c.embedding_multiplier, "lm_he": c.lm_head_multiplier} if base == FALCON else {}
        return {WHOLE[name]: value * factors.get(name.removeprefix("model.")[:5], 1.0)}
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    stem = f"blk.{layer}."
    if rest in NORMS:
        return {stem + NORMS[rest]: value}
    if "input_linear" in rest or rest.endswith("gate_up_proj"):
        gate, up = value.chunk(2, value.dim() - 2)
        suffix = "_exps" if value.dim() == 3 else "_shexp" if c.num_local_experts else ""
        return {f"{stem}ffn_gate{suffix}.weight": gate, f"{stem}ffn_up{suffix}.weight": up}
    if rest == "shared_mlp.output_linear.weight":
        return {f"{stem}ffn_down{'_shexp' if c.num_local_experts else ''}.weight": value}
    part = next(rest.removeprefix(prefix) for prefix in LAYERS if rest.startswith(prefix))
    if base == FALCON:
        value = _with_multipliers(c, part, value)
    return {stem + MIXER[part]: _file_tensor(network, family, part, value)}


def _file_tensor(network: PreTrainedModel, family: str, part: str, value: Tensor) -> Tensor:
    """A tensor of a layer as the file has it."""
    c = network.config
    if part == "A_log":
        return -value.exp()[:, None]
    if part == "D":
        return value[:, None]
    if part == "conv1d.weight":
        return value[:, 0]
    if part == "norm.weight":
        return value.view(c.n_groups if _base(family) == NEMOTRON else c.mamba_n_groups, -1)
    if part in ("q_proj.weight", "k_proj.weight") and getattr(c, "position_embedding_type", None) == "rope":
        heads = c.num_attention_heads if part[0] == "q" else c.num_key_value_heads
        return value.view(heads, 2, -1, value.shape[1]).transpose(1, 2).reshape(value.shape)
    return value


def _with_multipliers(c: Any, part: str, value: Tensor) -> Tensor:
    """A tensor of Falcon-H1 with its multipliers."""
    gate, down = c.mlp_multipliers
    factors = {
        "q_proj.weight": c.attention_in_multiplier,
        "k_proj.weight": c.attention_in_multiplier * c.key_multiplier,
        "v_proj.weight": c.attention_in_multiplier,
        "o_proj.weight": c.attention_out_multiplier,
        "out_proj.weight": c.ssm_out_multiplier,
        "gate_proj.weight": gate,
        "down_proj.weight": down,
    }
    if part != "in_proj.weight":
        return value * factors.get(part, 1.0)
    state = c.mamba_n_groups * c.mamba_d_state
    parts = value.split([c.mamba_d_ssm, c.mamba_d_ssm, state, state, c.mamba_n_heads])
    scaled = [p * m * c.ssm_in_multiplier for p, m in zip(parts, c.ssm_multipliers, strict=True)]
    return torch.cat(scaled)


def _keys(network: PreTrainedModel, family: str) -> dict[str, Any]:
    c, base = network.config, _base(family)
    nemotron, granite = base == NEMOTRON, base == GRANITE
    kinds = list(c.layers_block_type) if nemotron else list(c.layer_types) if granite else [FULL] * c.num_hidden_layers
    own = (c.mamba_num_heads, c.mamba_head_dim, c.n_groups, c.ssm_state_size, c.conv_kernel) if nemotron else (
        c.mamba_n_heads, c.mamba_d_head, c.mamba_n_groups, c.mamba_d_state, c.mamba_d_conv
    )  # fmt: skip
    keys: dict[str, Any] = {
        "block_count": len(kinds),
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(c.layer_norm_epsilon if nemotron else c.rms_norm_eps),
        "ssm.time_step_rank": own[0],
        "ssm.inner_size": own[0] * own[1],
        "ssm.group_count": own[2],
        "ssm.state_size": own[3],
        "ssm.conv_kernel": own[4],
    }
    if base == FALCON:
        return keys | {"attention.key_length": c.head_dim, "rope.freq_base": float(c.rope_parameters["rope_theta"])}
    keys["attention.head_count_kv"] = [c.num_key_value_heads * (kind == FULL) for kind in kinds]
    keys["rope.scaling.finetuned"] = getattr(c, "position_embedding_type", None) == "rope"
    if nemotron:
        width = c.moe_intermediate_size if EXPERTS in kinds else c.intermediate_size
        keys["feed_forward_length"] = [width * (kind in (DENSE, EXPERTS)) for kind in kinds]
        keys["attention.key_length"] = c.head_dim
        if EXPERTS not in kinds:
            return keys
        latent = {"moe_latent_size": c.moe_latent_size} if c.moe_latent_size else {}
        return (
            keys
            | latent
            | {
                "expert_count": c.n_routed_experts,
                "expert_used_count": c.num_experts_per_tok,
                "expert_feed_forward_length": c.moe_intermediate_size,
                "expert_shared_count": 1,
                "expert_shared_feed_forward_length": c.moe_shared_expert_intermediate_size,
                "expert_weights_scale": float(c.routed_scaling_factor),
            }
        )
    return keys | {
        "feed_forward_length": c.intermediate_size if c.num_local_experts else c.shared_intermediate_size,
        "expert_count": c.num_local_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_shared_feed_forward_length": c.shared_intermediate_size,
        "embedding_scale": float(c.embedding_multiplier),
        "residual_scale": float(c.residual_multiplier),
        "logit_scale": float(c.logits_scaling),
        "attention.scale": float(c.attention_multiplier),
        "rope.freq_base": float(c.rope_parameters["rope_theta"]),
    }
