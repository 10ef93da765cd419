"""Random models of transformers whose blocks differ in their heads, of unfriendly sizes, and GGUF files of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import write

FAMILIES = ("gemma4-e", "gemma4-k", "gemma4-moe")
"""Kinds of Gemma 4: the last blocks share caches and each has an embedding, values are keys, or blocks have experts."""
LOCAL, FULL = "sliding_attention", "full_attention"
NAMES = {
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "per_layer_input_gate.weight": "inp_gate.weight",
    "per_layer_projection.weight": "proj.weight",
    "post_per_layer_input_norm.weight": "post_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
}
ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model with at least one block of each kind, the last without a window."""
    rng = random.Random(f"{family} {seed}")
    kv_heads, sharing = rng.randint(1, 3), rng.randint(1, 3) if family == "gemma4-e" else 0
    owners = [LOCAL, *rng.choices([LOCAL, FULL], k=rng.randint(0, 2)), *([FULL] if sharing else [])]
    rng.shuffle(owners)
    kinds = [*owners, *rng.choices([LOCAL, FULL], k=max(0, sharing - 1)), FULL]
    head, vocab = rng.choice([6, 10, 12, 20, 24]), rng.randint(40, 130)
    sizes: dict[str, Any] = {
        "vocab_size": vocab,
        "vocab_size_per_layer_input": vocab,
        "hidden_size": rng.choice([20, 36, 50, 64]),
        "intermediate_size": rng.choice([20, 33, 48, 50]),
        "num_hidden_layers": len(kinds),
        "num_attention_heads": kv_heads * rng.choice([1, 2, 3]),
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "global_head_dim": rng.choice([head, 2 * head, 8, 34]),
        "max_position_embeddings": 256,
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
        "sliding_window": rng.choice([1, 2, 7, 16, 31]),
        "layer_types": kinds,
        "pad_token_id": 0,
        "final_logit_softcapping": rng.choice([None, 0.5, 30.0]),
        "num_kv_shared_layers": sharing,
        "hidden_size_per_layer_input": 0,
        "rope_parameters": {
            FULL: {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": rng.choice([0.25, 0.5, 1])},
            LOCAL: {"rope_type": "default", "rope_theta": 1e4},
        },
    }
    return scale_blocks(model(family, seed, **sizes | MORE[family](rng, kv_heads)), seed)


def scale_blocks(network: PreTrainedModel, seed: int) -> PreTrainedModel:
    """The model with a random scale of every block."""
    torch.manual_seed(seed)
    for block in network.model.layers:
        block.layer_scalar.uniform_(0.4, 1.2)
    return network


def _own_embeddings(rng: random.Random, kv_heads: int) -> dict[str, Any]:
    return {"hidden_size_per_layer_input": rng.choice([3, 8, 16]), "use_double_wide_mlp": rng.random() < 0.6}


def _keys_as_values(rng: random.Random, kv_heads: int) -> dict[str, Any]:
    return {"attention_k_eq_v": True, "num_global_key_value_heads": rng.choice([None, 1])}


def _experts(rng: random.Random, kv_heads: int) -> dict[str, Any]:
    count = rng.randint(2, 7)
    keys = _keys_as_values(rng, kv_heads) if rng.random() < 0.7 else {}
    return keys | {
        "enable_moe_block": True,
        "num_experts": count,
        "top_k_experts": rng.randint(1, min(count, 4)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
    }


MORE = {"gemma4-e": _own_embeddings, "gemma4-k": _keys_as_values, "gemma4-moe": _experts}


def write_gguf(
    model: PreTrainedModel, family: str, path: Path, kind: str = "F32", tokenizer: str | None = None
) -> Path:
    """The file that llama.cpp's converter makes of a model. kind, tokenizer: see ``write``."""
    tensors = {"rope_freqs.weight": _divisors(model.config)}
    for name, value in model.state_dict().items():
        if name != "lm_head.weight" or not model.config.tie_word_embeddings:
            tensors[_name(name)] = value.clone()
    return write(path, "gemma4", _keys(model.config), tensors, kind, tokenizer)


def _name(name: str) -> str:
    if name in ENDS:
        return ENDS[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[rest]}"


def _divisors(c: Any) -> Tensor:
    """Divisors of the pairs of a head that attends to everything: large ones stand still."""
    pairs = sizes_of(c, FULL)[0] // 2
    turning = int(pairs * c.rope_parameters[FULL]["partial_rotary_factor"])
    return torch.tensor([1.0] * turning + [1e30] * (pairs - turning))


def sizes_of(c: Any, kind: str) -> tuple[int, int]:
    """Width and number of key heads in blocks of a kind."""
    own = c.per_layer_config[c.layer_types.index(kind)]
    return own.head_dim, own.num_key_value_heads


def _keys(c: Any) -> dict[str, Any]:
    head, local = (sizes_of(c, kind)[0] for kind in (FULL, LOCAL))
    double = c.num_kv_shared_layers if c.use_double_wide_mlp else 0
    ffs = [c.intermediate_size] * (c.num_hidden_layers - double) + [2 * c.intermediate_size] * double
    keys: dict[str, Any] = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": ffs if double else c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": [sizes_of(c, kind)[1] for kind in c.layer_types],
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.key_length_swa": local,
        "attention.value_length_swa": local,
        "attention.sliding_window": c.sliding_window,
        "attention.sliding_window_pattern": [kind == LOCAL for kind in c.layer_types],
        "attention.shared_kv_layers": c.num_kv_shared_layers,
        "embedding_length_per_layer_input": c.hidden_size_per_layer_input,
        "rope.dimension_count": head,
        "rope.dimension_count_swa": local,
        "rope.freq_base": float(c.rope_parameters[FULL]["rope_theta"]),
        "rope.freq_base_swa": float(c.rope_parameters[LOCAL]["rope_theta"]),
    }
    if c.final_logit_softcapping:
        keys["final_logit_softcapping"] = float(c.final_logit_softcapping)
    if not c.enable_moe_block:
        return keys
    more = {"expert_count": c.num_experts, "expert_used_count": c.top_k_experts}
    return keys | more | {"expert_feed_forward_length": c.moe_intermediate_size}
