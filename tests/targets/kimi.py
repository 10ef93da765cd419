"""Random models of transformers with KDA and latent attention, of unfriendly sizes: directories as published, and GGUF
files."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import WHOLE, write

FAMILIES = ("kimi-linear",)
KDA, FULL = "linear_attention", "full_attention"
BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
    "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
    "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.b_proj.weight": "ssm_beta.weight",
    "self_attn.o_norm.weight": "ssm_norm.weight",
    "self_attn.dt_bias": "ssm_dt.bias",
    **{f"self_attn.{x}_proj.weight": f"attn_{x}.weight" for x in "qkv"},
    **{f"self_attn.{x}_proj.weight": f"ssm_{x}.weight" for x in ("f_a", "f_b", "g_a", "g_b")},
    **{f"mlp.{x}_proj.weight": f"ffn_{x}.weight" for x in ("gate", "up", "down")},
    **{f"block_sparse_moe.shared_experts.{x}_proj.weight": f"ffn_{x}_shexp.weight" for x in ("gate", "up", "down")},
}
EXPERTS = {"w1": "gate", "w2": "down", "w3": "up"}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model with at least one block of each kind. Its eps is the one that checkpoints have in inner norms anyway."""
    rng = random.Random(f"{family} {seed}")
    layers, experts = rng.randint(2, 5), rng.randint(2, 7)
    kinds = [KDA, FULL, *rng.choices([KDA, FULL], k=layers - 2)]
    rng.shuffle(kinds)
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": rng.choice([20, 36, 50, 64]),
        "intermediate_size": rng.choice([20, 33, 48]),
        "num_hidden_layers": layers,
        "num_attention_heads": (heads := rng.randint(1, 6)),
        "num_key_value_heads": heads,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "layer_types": kinds,
        "mlp_layer_types": dense_first(rng.randint(0, layers - 1), layers),
        "linear_head_dim": rng.choice([6, 8, 12, 20]),
        "linear_num_heads": heads,
        "linear_conv_kernel_dim": rng.randint(2, 5),
        "kv_lora_rank": rng.choice([7, 12, 20, 33]),
        "qk_rope_head_dim": rng.choice([2, 6, 8, 14]),
        "qk_nope_head_dim": rng.choice([5, 12, 20]),
        "v_head_dim": rng.choice([6, 11, 20]),
        "num_local_experts": experts,
        "num_experts_per_tok": rng.randint(1, min(experts, 4)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "n_shared_experts": rng.randint(1, 2),
        "routed_scaling_factor": rng.choice([1.0, 2.446]),
    }
    return model(family, seed, **sizes)


def dense_first(dense: int, layers: int) -> list[str]:
    """Kinds of feed-forward layers."""
    return ["dense"] * dense + ["sparse"] * (layers - dense)


def save(network: PreTrainedModel, directory: Path) -> Path:
    """A directory as published: transformers 5 saves other options, and other names of dense layers."""
    network.save_pretrained(directory)
    save_file(publish_names(network, directory), directory / "model.safetensors", {"format": "pt"})
    c, raw = network.config, json.loads((directory / "config.json").read_text("utf-8"))
    for key in ("layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim"):
        raw.pop(key)
    blocks = {kind: [i + 1 for i, one in enumerate(c.layer_types) if one == kind] for kind in (KDA, FULL)}
    raw |= {
        "architectures": ["KimiLinearForCausalLM"],
        "first_k_dense_replace": c.mlp_layer_types.count("dense"),
        "mla_use_nope": True,
        "moe_layer_freq": 1,
        "moe_router_activation_func": "sigmoid",
        "linear_attn_config": {
            "head_dim": c.linear_head_dim,
            "num_heads": c.linear_num_heads,
            "short_conv_kernel_size": c.linear_conv_kernel_dim,
            "kda_layers": blocks[KDA],
            "full_attn_layers": blocks[FULL],
        },
    }
    (directory / "config.json").write_text(json.dumps(raw), "utf-8")
    return directory


def publish_names(network: PreTrainedModel, directory: Path) -> dict[str, Tensor]:
    """The saved tensors under their published names."""
    dense = [i for i, kind in enumerate(network.config.mlp_layer_types) if kind == "dense"]
    tensors = load_file(directory / "model.safetensors")
    for i in dense:
        for x in ("gate", "up", "down"):
            stem = f"model.layers.{i}."
            tensors[f"{stem}mlp.{x}_proj.weight"] = tensors.pop(f"{stem}block_sparse_moe.{x}_proj.weight")
    return tensors


def write_gguf(
    network: PreTrainedModel, family: str, path: Path, kind: str = "F32", tokenizer: str | None = None
) -> Path:
    """The file that llama.cpp's converter makes of a model. kind, tokenizer: see ``write``."""
    with tempfile.TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        named = publish_names(network, Path(folder))
    tensors: dict[str, Tensor] = {}
    for name, value in named.items():
        if ".experts." not in name:
            tensors |= _tensors(network, name, value)
    for i, feed_forward in enumerate(network.config.mlp_layer_types):
        for own, part in EXPERTS.items() if feed_forward == "sparse" else ():
            stem, count = f"model.layers.{i}.block_sparse_moe.experts.", network.config.num_experts
            stack = [named[f"{stem}{expert}.{own}.weight"] for expert in range(count)]
            tensors[f"blk.{i}.ffn_{part}_exps.weight"] = torch.stack(stack)
    return write(path, family, _keys(network), tensors, kind, tokenizer)


def _tensors(network: PreTrainedModel, name: str, value: Tensor) -> dict[str, Tensor]:
    """The tensors of a file that a tensor of a checkpoint becomes."""
    if name in WHOLE:
        return {WHOLE[name]: value}
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    stem, c = f"blk.{layer}.", network.config
    if rest == "self_attn.A_log":
        return {f"{stem}ssm_a": -value.exp()}
    if "conv1d" in rest:
        return {f"{stem}ssm_conv1d_{rest.split('.')[1][0]}.weight": value[None]}
    if rest == "self_attn.kv_b_proj.weight":
        heads = value.view(c.num_attention_heads, -1, c.kv_lora_rank)
        keys, values = heads.split([c.qk_nope_head_dim, c.v_head_dim], 1)
        return {f"{stem}attn_k_b.weight": keys.transpose(1, 2), f"{stem}attn_v_b.weight": values}
    return {stem + BLOCK[rest]: value}


def _keys(network: PreTrainedModel) -> dict[str, Any]:
    c = network.config
    return {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": [int(kind == FULL) for kind in c.layer_types],
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "attention.key_length": c.kv_lora_rank + c.qk_rope_head_dim,
        "attention.kv_lora_rank": c.kv_lora_rank,
        "attention.key_length_mla": c.qk_nope_head_dim + c.qk_rope_head_dim,
        "attention.value_length_mla": c.v_head_dim,
        "rope.dimension_count": c.qk_rope_head_dim,
        "kda.head_dim": c.linear_head_dim,
        "ssm.conv_kernel": c.linear_conv_kernel_dim,
        "expert_count": c.num_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
        "expert_shared_count": c.n_shared_experts,
        "expert_weights_scale": float(c.routed_scaling_factor),
        "expert_gating_func": 2,
        "leading_dense_block_count": c.mlp_layer_types.count("dense"),
    }
