"""Random models of transformers without windows, of unfriendly sizes, and GGUF files of them."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.targets import written as plain
from tests.targets.tiny import model

FAMILIES = ("llama", "qwen2", "qwen3", "qwen3moe", "glm4moe", "qwen3next", "qwen35", "qwen35moe")
HYBRID = ("qwen3next", "qwen35", "qwen35moe")
HEADS = {"glm4moe": [4, 12, 20, 24], "qwen3next": [8, 16, 24], "qwen35": [8, 16, 24], "qwen35moe": [8, 16, 24]}
"""Widths whose rotating part is even."""
LINEAR = {
    "in_proj_qkv": "attn_qkv",
    "in_proj_z": "attn_gate",
    "in_proj_b": "ssm_beta",
    "in_proj_a": "ssm_alpha",
    "in_proj_ba": "ssm_ba",
    "out_proj": "ssm_out",
    "norm": "ssm_norm",
    "conv1d": "ssm_conv1d",
}
LAYER = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{
        f"mlp.{shared}.{name}_proj": f"ffn_{name}_shexp"
        for shared in ("shared_expert", "shared_experts")
        for name in ("gate", "up", "down")
    },
    **{f"linear_attn.{theirs}": own for theirs, own in LINEAR.items()},
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    rng = random.Random(f"{family} {seed}")
    kv_heads = rng.randint(1, 3)
    heads, head = kv_heads * rng.randint(1, 3), rng.choice(HEADS.get(family, [6, 10, 12, 20, 24]))
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": {"qwen2": heads * head, "llama": 7 * heads}.get(family) or rng.choice([20, 36, 50, 64]),
        "intermediate_size": rng.choice([20, 33, 48, 50]),
        "num_hidden_layers": rng.randint(2, 5),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 256,
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
        "tie_word_embeddings": rng.random() < 0.5,
        "pad_token_id": 0,
    }
    if family != "qwen2":
        sizes["head_dim"] = head
    return model(family, seed, **sizes, **MORE[family](rng, sizes["num_hidden_layers"]))


def _dense(rng: random.Random, layers: int) -> dict[str, Any]:
    base = {"rope_theta": rng.choice([1e4, 1e6])}
    stretched = {"factor": rng.choice([2.0, 5.0]), "original_max_position_embeddings": rng.choice([16, 64])}
    bands = {"low_freq_factor": 1.0, "high_freq_factor": rng.choice([2.0, 4.0])}
    kinds: dict[str, dict[str, Any]] = {
        "default": {},
        "linear": {"factor": 2.5},
        "yarn": stretched | {"beta_fast": rng.choice([32.0, 8.0]), "beta_slow": 1.0},
        "llama3": stretched | bands,
    }
    kind = rng.choice(sorted(kinds))
    return {"rope_parameters": {"rope_type": kind, **base, **kinds[kind]}}


def _with_bias(rng: random.Random, layers: int) -> dict[str, Any]:
    return _dense(rng, layers) | {"attention_bias": rng.random() < 0.5}


def _experts(rng: random.Random, layers: int) -> dict[str, Any]:
    count = rng.randint(2, 7)
    return {
        "num_experts": count,
        "num_experts_per_tok": rng.randint(1, min(count, 4)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "norm_topk_prob": rng.random() < 0.7,
    }


def _glm(rng: random.Random, layers: int) -> dict[str, Any]:
    groups = rng.choice([1, 2, 3])
    count, open_groups = groups * rng.randint(2, 4), rng.randint(1, groups)
    return {
        "first_k_dense_replace": rng.randint(0, layers - 1),
        "n_routed_experts": count,
        "n_group": groups,
        "topk_group": open_groups,
        "num_experts_per_tok": rng.randint(1, min(4, count // groups * open_groups)),
        "n_shared_experts": rng.randint(1, 2),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "norm_topk_prob": rng.random() < 0.7,
        "routed_scaling_factor": rng.choice([1.0, 1.5]),
        "use_qk_norm": rng.random() < 0.5,
        "attention_bias": rng.random() < 0.5,
    }


def _delta(rng: random.Random, layers: int) -> dict[str, Any]:
    """Sizes with one block of each kind or more, for transformers' cache."""
    kinds = ["linear_attention", "full_attention", *rng.choices(["linear_attention", "full_attention"], k=layers - 2)]
    rng.shuffle(kinds)
    keys = rng.randint(1, 3)
    return {
        "layer_types": kinds,
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * rng.randint(1, 3),
        "linear_key_head_dim": rng.choice([8, 12, 16]),
        "linear_value_head_dim": rng.choice([8, 12, 20]),
        "linear_conv_kernel_dim": rng.randint(2, 5),
    }


def _delta_experts(rng: random.Random, layers: int) -> dict[str, Any]:
    shared = {"shared_expert_intermediate_size": rng.choice([10, 24, 33])}
    return _delta(rng, layers) | _experts(rng, layers) | shared


def _with_norms(rng: random.Random, layers: int) -> dict[str, Any]:
    """Qwen3.5 has no option for this."""
    return _delta_experts(rng, layers) | {"norm_topk_prob": True}


MORE = {
    "llama": _with_bias,
    "qwen2": _dense,
    "qwen3": _with_bias,
    "qwen3moe": lambda rng, layers: _with_bias(rng, layers) | _experts(rng, layers),
    "glm4moe": _glm,
    "qwen3next": _delta_experts,
    "qwen35": _delta,
    "qwen35moe": _with_norms,
}


def write_gguf(model: PreTrainedModel, family: str, path: Path) -> Path:
    """The file that llama.cpp's converter makes of a model, without a tokenizer."""
    if family not in (*HYBRID, "glm4moe"):
        named = plain.tensors(model, family == "llama")
        return plain.write(path, family, _keys(model, family), named | _divisors(model.config))
    return plain.write(path, family, _keys(model, family), _tensors(model, family))


def _keys(model: PreTrainedModel, family: str) -> dict[str, Any]:
    c, keys = model.config, plain.metadata(model, "")
    rope = c.rope_parameters
    share = rope.get("partial_rotary_factor", 1.0)
    keys["rope.dimension_count"] = int(keys["attention.key_length"] * share)
    if rope["rope_type"] in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    if rope["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        keys |= {f"rope.scaling.yarn_{beta}": float(rope[beta]) for beta in ("beta_fast", "beta_slow")}
    if "moe" in family or family == "qwen3next":
        keys |= _expert_keys(c)
    if family in HYBRID:
        keys |= _delta_keys(c)
    return keys


def _expert_keys(c: Any) -> dict[str, Any]:
    glm = c.model_type == "glm4_moe"
    keys: dict[str, Any] = {
        "expert_count": c.n_routed_experts if glm else c.num_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
    }
    if not glm:
        shared = getattr(c, "shared_expert_intermediate_size", 0)
        return keys | ({"expert_shared_feed_forward_length": shared} if shared else {})
    return keys | {
        "expert_gating_func": 2,
        "expert_weights_norm": bool(c.norm_topk_prob),
        "expert_weights_scale": float(c.routed_scaling_factor),
        "expert_shared_count": c.n_shared_experts,
        "expert_group_count": c.n_group,
        "expert_group_used_count": c.topk_group,
        "leading_dense_block_count": c.first_k_dense_replace,
    }


def _delta_keys(c: Any) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": c.linear_conv_kernel_dim,
        "ssm.state_size": c.linear_key_head_dim,
        "ssm.group_count": c.linear_num_key_heads,
        "ssm.time_step_rank": c.linear_num_value_heads,
        "ssm.inner_size": c.linear_num_value_heads * c.linear_value_head_dim,
        "attention.recurrent_layers": [kind == "linear_attention" for kind in c.layer_types],
    }


def _divisors(c: Any) -> dict[str, Tensor]:
    """The converter's ``rope_freqs.weight`` of a model with llama3 scaling."""
    rope = c.rope_parameters
    if rope["rope_type"] != "llama3":
        return {}
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    lengths = [2 * math.pi * rope["rope_theta"] ** (i / head) for i in range(0, head, 2)]
    return {"rope_freqs.weight": torch.tensor([_divisor(rope, length) for length in lengths])}


def _divisor(rope: dict[str, Any], length: float) -> float:
    """Divisor of the pair that turns once in ``length`` positions."""
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    turns = rope["original_max_position_embeddings"] / length
    if not low <= turns <= high:
        return 1.0 if turns > high else factor
    smooth = (turns - low) / (high - low)
    return 1 / ((1 - smooth) / factor + smooth)


def _tensors(model: PreTrainedModel, family: str) -> dict[str, Tensor]:
    """Tensors of glm4moe and the hybrids, which store norms less 1."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        less = family in HYBRID and "norm" in name and "linear_attn" not in name
        value = tensor + 1 if less else tensor.clone()
        if name in plain.WHOLE:
            tensors[plain.WHOLE[name]] = value
            continue
        layer, rest = name.removeprefix("model.layers.").split(".", 1)
        tensors |= {f"blk.{layer}.{own}": v for own, v in _of_block(rest, value, model.config, family).items()}
    return tensors


def _of_block(name: str, value: Tensor, c: Any, family: str) -> dict[str, Tensor]:
    """The tensors of a file that a tensor of a checkpoint becomes."""
    match name.removeprefix("mlp.").removeprefix("experts."):
        case "gate_up_proj":
            gate, up = value.chunk(2, 1)
            return {"ffn_gate_exps.weight": gate, "ffn_up_exps.weight": up}
        case "down_proj":
            return {"ffn_down_exps.weight": value}
        case "gate.e_score_correction_bias":
            return {"exp_probs_b.bias": value}
    if name.startswith("linear_attn."):
        return _of_delta(name.removeprefix("linear_attn."), value, c, family)
    stem, kind = name.rsplit(".", 1)
    own = "post_attention_norm" if stem == "post_attention_layernorm" else (plain.BLOCK | LAYER)[stem]
    return {f"{own}.{kind}": value}


def _of_delta(name: str, value: Tensor, c: Any, family: str) -> dict[str, Tensor]:
    """Tensors of a gated delta net. Files of Qwen3.5 have value heads in another order than checkpoints."""
    if name == "in_proj_qkvz.weight":
        return _apart(value, c)
    if name == "conv1d.weight":
        value = value.squeeze(1)
    if name == "A_log":
        value = -value.exp()
    if family != "qwen3next":
        value = _tile(name, value, c)
    own = {"A_log": "ssm_a", "dt_bias": "ssm_dt.bias"}
    return {own.get(name) or f"{LINEAR[name.split('.')[0]]}.weight": value}


def _apart(value: Tensor, c: Any) -> dict[str, Tensor]:
    """Rows of each key head are [q | k | v | z] in a checkpoint of Qwen3-Next."""
    keys, dk = c.linear_num_key_heads, c.linear_key_head_dim
    values = c.linear_num_value_heads // keys * c.linear_value_head_dim
    heads = [list(rows.split([dk, dk, values, values])) for rows in value.chunk(keys)]
    q, k, v, z = (torch.cat([head[i] for head in heads]) for i in range(4))
    return {"attn_qkv.weight": torch.cat([q, k, v]), "attn_gate.weight": z}


def _tile(name: str, value: Tensor, c: Any) -> Tensor:
    """Value heads in the order in which key heads take turns."""
    keys, count, dv = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_value_head_dim
    heads = [j % keys * (count // keys) + j // keys for j in range(count)]
    numbers = torch.tensor([dv * head + i for head in heads for i in range(dv)])
    match name:
        case "in_proj_qkv.weight" | "conv1d.weight":
            first = 2 * keys * c.linear_key_head_dim
            return torch.cat([value[:first], value[first:][numbers]])
        case "in_proj_z.weight":
            return value[numbers]
        case "out_proj.weight":
            return value[:, numbers]
        case "norm.weight":
            return value
    return value[heads]
