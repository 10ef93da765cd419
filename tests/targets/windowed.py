"""Random models of transformers with windows, of unfriendly sizes, and GGUF files of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import interleave

FAMILIES = ("mistral", "phi3", "gemma2", "gemma3", "gpt-oss", "gpt-oss-notruncate")
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.router": "ffn_gate_inp",
}
ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model whose window is shorter than the texts."""
    rng = random.Random(f"{family} {seed}")
    kv_heads = rng.randint(1, 3)
    heads, head = kv_heads * rng.randint(1, 3), rng.choice([6, 10, 12, 20, 24])
    width = {"phi3": heads * head, "gemma2": 7 * heads, "gemma3": 18 * heads}.get(family, rng.choice([20, 36, 50, 64]))
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": width,
        "intermediate_size": rng.choice([20, 33, 48, 50]),
        "num_hidden_layers": rng.randint(1, 5),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 256,
        "head_dim": head,
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
        "sliding_window": rng.choice([1, 2, 7, 16, 31]),
        "tie_word_embeddings": family.startswith("gemma") or rng.random() < 0.5,
        "pad_token_id": 0,
    }
    return model(family.removesuffix("-notruncate"), seed, **sizes, **MORE[family](rng, head))


def _mistral(rng: random.Random, head: int) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": rng.choice([1e4, 1e6])}}


def _phi3(rng: random.Random, head: int) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
    original = 256
    if rng.random() < 0.5:
        original, pairs = 32, head // 2
        factors = {f"{kind}_factor": [1 + 3 * rng.random() for _ in range(pairs)] for kind in ("long", "short")}
        rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": original, **factors}
    return {"rope_parameters": rope, "original_max_position_embeddings": original}


def _gemma2(rng: random.Random, head: int) -> dict[str, Any]:
    return {
        "query_pre_attn_scalar": head,
        "attn_logit_softcapping": rng.choice([1.0, 20.0]),
        "final_logit_softcapping": rng.choice([0.5, 30.0]),
    }


def _gemma3(rng: random.Random, head: int) -> dict[str, Any]:
    full: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6}
    if rng.random() < 0.5:
        full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    local = {"rope_type": "default", "rope_theta": 1e4}
    return {
        "query_pre_attn_scalar": head,
        "rope_parameters": {"full_attention": full, "sliding_attention": local},
    }


def _gpt_oss(rng: random.Random, head: int) -> dict[str, Any]:
    count = rng.randint(2, 7)
    return {
        "num_local_experts": count,
        "num_experts_per_tok": rng.randint(1, min(count, 4)),
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 64,
            "truncate": True,
        },
    }


def _whole(rng: random.Random, head: int) -> dict[str, Any]:
    """YaRN as in the released models."""
    fields = _gpt_oss(rng, head)
    fields["rope_parameters"]["truncate"] = False
    return fields


MORE = {
    "mistral": _mistral,
    "phi3": _phi3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt-oss": _gpt_oss,
    "gpt-oss-notruncate": _whole,
}


def write_gguf(
    model: PreTrainedModel, family: str, path: Path, blocks: Mapping[str, torch.Tensor] | None = None
) -> Path:
    """The file that llama.cpp's converter makes of a model, without a tokenizer. blocks: of MXFP4, by name."""
    arch = {"mistral": "llama"}.get(family, family)
    writer = gguf.GGUFWriter(path, arch)
    for key, value in _keys(model, family).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"{arch}.{key}", value)
    blocks = blocks or {}
    for name, tensor in _tensors(model, family).items():
        if name in blocks:
            writer.add_tensor(name, blocks[name].numpy(), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        else:
            writer.add_tensor(name, tensor.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _keys(model: PreTrainedModel, family: str) -> dict[str, Any]:
    c = model.config
    rope = c.rope_parameters
    full = rope.get("full_attention", rope)
    keys: dict[str, Any] = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "attention.key_length": _head(c),
        "rope.dimension_count": _head(c),
        "rope.freq_base": float(full["rope_theta"]),
    }
    if family != "mistral":
        keys["attention.sliding_window"] = c.sliding_window or 0
    if full["rope_type"] in ("linear", "yarn"):
        keys |= {"rope.scaling.type": full["rope_type"], "rope.scaling.factor": float(full["factor"])}
    if full["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = full["original_max_position_embeddings"]
    if full["rope_type"] == "longrope":
        keys["rope.scaling.original_context_length"] = full["original_max_position_embeddings"]
        keys["rope.scaling.attn_factor"] = float(model.model.rotary_emb.attention_scaling)
    if family == "gemma2":
        keys["attn_logit_softcapping"] = float(c.attn_logit_softcapping)
        keys["final_logit_softcapping"] = float(c.final_logit_softcapping)
    if family == "gpt-oss":
        keys |= {"expert_count": c.num_local_experts, "expert_used_count": c.num_experts_per_tok}
        keys["expert_feed_forward_length"] = c.intermediate_size
    return keys


def _head(c: Any) -> int:
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def _tensors(model: PreTrainedModel, family: str) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    c = model.config
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        value = tensor + 1 if "norm" in name and family.startswith("gemma") else tensor
        if name in ENDS:
            tensors[ENDS[name]] = value
            continue
        layer, rest = name.removeprefix("model.layers.").split(".", 1)
        tensors |= {f"blk.{layer}.{own}": v for own, v in _block(rest, value, family, c).items()}
    if (factors := c.rope_parameters).get("rope_type") == "longrope":
        tensors |= {f"rope_factors_{k}.weight": torch.tensor(factors[f"{k}_factor"]) for k in ("long", "short")}
    return tensors


def _block(name: str, value: torch.Tensor, family: str, c: Any) -> dict[str, torch.Tensor]:
    """The tensors of a file that a tensor of a checkpoint becomes."""
    if name == "self_attn.sinks":
        return {"attn_sinks.weight": value}
    if "experts" in name:
        return _experts(name, value)
    stem, kind = name.rsplit(".", 1)
    own = NAMES[stem]
    if stem == "post_attention_layernorm" and family not in ("mistral", "phi3"):
        own = "post_attention_norm"
    if family == "mistral" and own in ("attn_q", "attn_k"):
        value = interleave(value, c.num_attention_heads if own == "attn_q" else c.num_key_value_heads)
    return {f"{own}.{kind}": value}


def _experts(name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
    kind = "bias" if name.endswith("_bias") else "weight"
    whole = value if kind == "bias" else value.mT
    if "down" in name:
        return {f"ffn_down_exps.{kind}": whole}
    return {f"ffn_gate_exps.{kind}": whole[:, ::2], f"ffn_up_exps.{kind}": whole[:, 1::2]}
