"""Random models of transformers with short convolutions, of unfriendly sizes, and GGUF files of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import write

FAMILIES = ("lfm2", "lfm2moe")
NAMES = {
    "operator_norm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_layernorm.weight": "attn_q_norm.weight",
    "self_attn.k_layernorm.weight": "attn_k_norm.weight",
    "self_attn.out_proj.weight": "attn_output.weight",
    "conv.in_proj.weight": "shortconv.in_proj.weight",
    "conv.conv.weight": "shortconv.conv.weight",
    "conv.out_proj.weight": "shortconv.out_proj.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "feed_forward.w1.weight": "ffn_gate.weight",
    "feed_forward.w2.weight": "ffn_down.weight",
    "feed_forward.w3.weight": "ffn_up.weight",
    "feed_forward.gate.weight": "ffn_gate_inp.weight",
    "feed_forward.expert_bias": "exp_probs_b.bias",
    "feed_forward.experts.down_proj": "ffn_down_exps.weight",
}
ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.embedding_norm.weight": "token_embd_norm.weight",
    "lm_head.weight": "output.weight",
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model with at least one block of each kind."""
    rng = random.Random(f"{family} {seed}")
    kv_heads, layers = rng.randint(1, 3), rng.randint(2, 5)
    heads = kv_heads * rng.randint(1, 3)
    kinds = ["conv", "full_attention", *rng.choices(["conv", "full_attention"], k=layers - 2)]
    rng.shuffle(kinds)
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": heads * rng.choice([6, 10, 12, 20]),
        "intermediate_size": rng.choice([20, 33, 48, 50]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 256,
        "norm_eps": rng.choice([1e-5, 1e-6]),
        "tie_word_embeddings": rng.random() < 0.5,
        "pad_token_id": 0,
        "layer_types": kinds,
        "conv_L_cache": rng.randint(2, 5),
        "rope_parameters": {"rope_type": "default", "rope_theta": rng.choice([1e4, 1e6])},
    }
    return model(family, seed, **sizes, **(_experts(rng, layers) if family == "lfm2moe" else _rounding(rng)))


def _rounding(rng: random.Random) -> dict[str, Any]:
    """Whether and how the width of the feed-forward layer is rounded."""
    return {
        "block_auto_adjust_ff_dim": rng.random() < 0.7,
        "block_multiple_of": rng.choice([1, 8, 10]),
        "block_ffn_dim_multiplier": rng.choice([1.0, 1.3]),
    }


def _experts(rng: random.Random, layers: int) -> dict[str, Any]:
    count = rng.randint(2, 7)
    return {
        "num_experts": count,
        "num_experts_per_tok": rng.randint(1, min(count, 4)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "num_dense_layers": rng.randint(0, layers - 1),
        "use_expert_bias": rng.random() < 0.7,
    }


def write_gguf(
    model: PreTrainedModel, family: str, path: Path, kind: str = "F32", tokenizer: str | None = None
) -> Path:
    """The file that llama.cpp's converter makes of a model. kind, tokenizer: see ``write``."""
    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name != "lm_head.weight" or not model.config.tie_word_embeddings:
            tensors |= _tensors(name, value.clone())
    return write(path, family, _keys(model, family), tensors, kind, tokenizer)


def _tensors(name: str, value: Tensor) -> dict[str, Tensor]:
    """The tensors of a file that a tensor of a checkpoint becomes."""
    if name in ENDS:
        return {ENDS[name]: value}
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    if rest == "feed_forward.experts.gate_up_proj":
        gate, up = value.chunk(2, 1)
        return {f"blk.{layer}.ffn_gate_exps.weight": gate, f"blk.{layer}.ffn_up_exps.weight": up}
    return {f"blk.{layer}.{NAMES[rest]}": value[:, 0] if rest == "conv.conv.weight" else value}


def _keys(model: PreTrainedModel, family: str) -> dict[str, Any]:
    c = model.config
    dense = [block.feed_forward.w1.out_features for block in model.model.layers if hasattr(block.feed_forward, "w1")]
    keys: dict[str, Any] = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": dense[0] if dense else c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": [c.num_key_value_heads * (kind != "conv") for kind in c.layer_types],
        "attention.layer_norm_rms_epsilon": float(c.norm_eps),
        "rope.freq_base": float(c.rope_parameters["rope_theta"]),
        "shortconv.l_cache": c.conv_L_cache,
    }
    if family == "lfm2":
        return keys
    return keys | {
        "expert_count": c.num_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
        "leading_dense_block_count": c.num_dense_layers,
        "expert_gating_func": 2,
    }
