"""Random models of transformers with residual streams and a sparse index, of unfriendly sizes: GLM-5.3-Flash, as
directories as published, and as GGUF files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import WHOLE, write

GLM = "glm5_next"
FAMILIES = (GLM,)
KDA, FULL = "linear_attention", "full_attention"
INDEXER = {
    "wk.weight": "indexer.attn_k.weight",
    "wq_b.weight": "indexer.attn_q_b.weight",
    "k_norm.weight": "indexer.k_norm.weight",
    "k_norm.bias": "indexer.k_norm.bias",
    "weights_proj.weight": "indexer.proj.weight",
    "index_kpool_compress_ape": "indexer_compressor_ape.weight",
    "index_kpool_compress_gate": "indexer_compressor_gate.weight",
}
BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight",
    "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight",
    "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.b_proj.weight": "ssm_beta.weight",
    "self_attn.o_norm.weight": "ssm_norm.weight",
    "self_attn.forget_gate.dt_bias": "ssm_dt.bias",
    **{f"self_attn.{x}_proj.weight": f"attn_{x}.weight" for x in "qkv"},
    **{f"self_attn.forget_gate.{x}_proj.weight": f"ssm_{x}.weight" for x in ("f_a", "f_b")},
    **{f"self_attn.{x}_proj.weight": f"ssm_{x}.weight" for x in ("g_a", "g_b")},
    **{f"mlp.{x}_proj.weight": f"ffn_{x}.weight" for x in ("gate", "up", "down")},
    **{f"mlp.shared_experts.{x}_proj.weight": f"ffn_{x}_shexp.weight" for x in ("gate", "up", "down")},
    **{f"self_attn.indexer.{own}": name for own, name in INDEXER.items()},
    **{f"{x}_hc.{part}": f"hc_{x}_{part}.weight" for x in ("attn", "ffn") for part in ("fn", "base", "scale")},
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model with blocks of both kinds, whose index chooses fewer positions than texts have."""
    rng = random.Random(f"{family} {seed}")
    layers, experts = rng.randint(2, 5), rng.randint(2, 7)
    kinds = [KDA, FULL, *rng.choices([KDA, FULL], k=layers - 2)]
    rng.shuffle(kinds)
    heads, pool, dense = rng.randint(1, 6), rng.choice([1, 3, 4, 8]), rng.randint(0, layers - 1)
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": rng.choice([20, 36, 50, 64]),
        "intermediate_size": rng.choice([20, 33, 48]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
        "layer_types": kinds,
        "indexer_types": index_types(rng, kinds),
        "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense),
        "linear_head_dim": rng.choice([6, 8, 12, 20]),
        "linear_num_heads": heads,
        "linear_conv_kernel_dim": rng.randint(2, 5),
        "linear_lower_bound": rng.choice([-5.0, -1.0]),
        "q_lora_rank": rng.choice([9, 20]),
        "kv_lora_rank": rng.choice([7, 12, 20, 33]),
        "qk_nope_head_dim": rng.choice([5, 12, 20]),
        "v_head_dim": rng.choice([6, 11, 20]),
        "n_routed_experts": experts,
        "num_experts_per_tok": rng.randint(1, min(experts, 4)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "n_shared_experts": rng.randint(1, 2),
        "routed_scaling_factor": rng.choice([1.0, 2.5]),
        "swiglu_limit": rng.choice([0.5, 10.0]),
        "hc_mult": rng.choice([2, 4]),
        "hc_sinkhorn_iters": rng.choice([3, 20]),
        "index_head_dim": rng.choice([6, 12]),
        "index_n_heads": rng.choice([16, 19]),  # of fewer, scores of many pools are 0
        "index_kpool": pool,
        "index_topk": pool * rng.randint(2, 6),
    }
    return model(family, seed, **sizes)


def index_types(rng: random.Random, kinds: list[str]) -> list[str]:
    """Blocks that read the index of the block before them, which transformers allows only after attention."""
    types = ["full"] * len(kinds)
    for i in range(1, len(kinds)):
        if kinds[i - 1] == kinds[i] == FULL and types[i - 1] == "full" and rng.random() < 0.6:
            types[i] = "shared"
    return types


def save(network: PreTrainedModel, directory: Path) -> Path:
    """A directory as published: transformers 5 saves sizes of recurrent blocks elsewhere."""
    network.save_pretrained(directory)
    path = directory / "config.json"
    raw = json.loads(path.read_text("utf-8"))
    c, text = network.config.text_config, raw["text_config"]
    for key in ("linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "linear_lower_bound"):
        text.pop(key)
    text["linear_attn_config"] = {
        "head_dim": c.linear_head_dim,
        "num_heads": c.linear_num_heads,
        "short_conv_kernel_size": c.linear_conv_kernel_dim,
        "gate_lower_bound": c.linear_lower_bound,
        "safe_gate": True,
    }
    path.write_text(json.dumps(raw), "utf-8")
    return directory


def write_gguf(
    network: PreTrainedModel, family: str, path: Path, kind: str = "F32", tokenizer: str | None = None
) -> Path:
    """The file that llama.cpp's converter makes of a model. kind, tokenizer: see ``write``."""
    tensors: dict[str, Tensor] = {}
    for name, value in network.state_dict().items():
        tensors |= _tensors(network.config.text_config, name.replace("model.language_model.", "model."), value.clone())
    return write(path, "glm5-next", _keys(network.config.text_config), tensors, kind, tokenizer)


def _tensors(c: Any, name: str, value: Tensor) -> dict[str, Tensor]:
    """The tensors of a file that a tensor of a model becomes; none of a vision tower."""
    if name in WHOLE:
        return {WHOLE[name]: value}
    if not name.startswith("model.layers."):
        return {}
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    stem = f"blk.{layer}."
    if rest.endswith("A_log"):
        return {f"{stem}ssm_a": -value.exp()}
    if rest == "self_attn.conv1d.weight":
        return {f"{stem}ssm_conv1d_{x}.weight": part[None] for x, part in zip("qkv", value.chunk(3), strict=True)}
    if rest == "mlp.experts.gate_up_proj":
        gate, up = value.chunk(2, 1)
        return {f"{stem}ffn_gate_exps.weight": gate, f"{stem}ffn_up_exps.weight": up}
    if rest == "self_attn.kv_b_proj.weight":
        heads = value.view(c.num_attention_heads, -1, c.kv_lora_rank)
        keys, values = heads.split([c.qk_nope_head_dim, c.v_head_dim], 1)
        return {f"{stem}attn_k_b.weight": keys.transpose(1, 2), f"{stem}attn_v_b.weight": values}
    return {stem + BLOCK[rest]: value}


def _keys(c: Any) -> dict[str, Any]:
    layers = c.num_hidden_layers
    return {
        "block_count": layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": [int(kind != KDA) for kind in c.layer_types],
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "attention.layer_norm_epsilon": 1e-6,
        "attention.key_length": c.kv_lora_rank,
        "attention.value_length": c.kv_lora_rank,
        "attention.q_lora_rank": c.q_lora_rank,
        "attention.kv_lora_rank": c.kv_lora_rank,
        "attention.key_length_mla": c.qk_nope_head_dim,
        "attention.value_length_mla": c.v_head_dim,
        "rope.dimension_count": 0,
        "kda.head_dim": c.linear_head_dim,
        "kda.gate_lower_bound": float(c.linear_lower_bound),
        "ssm.conv_kernel": c.linear_conv_kernel_dim,
        "attention.indexer.head_count": c.index_n_heads,
        "attention.indexer.key_length": c.index_head_dim,
        "attention.indexer.top_k": c.index_topk,
        "attention.indexer.kpool": c.index_kpool,
        "attention.indexer.kpool_select_tail": True,
        "attention.indexer.types": [kind == "full" for kind in c.indexer_types],
        "hyper_connection.count": c.hc_mult,
        "hyper_connection.sinkhorn_iterations": c.hc_sinkhorn_iters,
        "hyper_connection.epsilon": float(c.hc_eps),
        "expert_count": c.n_routed_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
        "expert_shared_count": c.n_shared_experts,
        "expert_weights_scale": float(c.routed_scaling_factor),
        "expert_weights_norm": True,
        "leading_dense_block_count": c.mlp_layer_types.count("dense"),
        "swiglu_clamp_exp": [float(c.swiglu_limit)] * layers,
        "swiglu_clamp_shexp": [float(c.swiglu_limit)] * layers,
    }
