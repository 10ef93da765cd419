"""GGUF files written from tiny models of transformers, in the variations that converters produce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers

from tools.zoo.export import add_tokenizer

WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
"""Names of the tensors outside of blocks."""
BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
Tensors = dict[str, torch.Tensor]


def tensors(model: transformers.PreTrainedModel, permuted: bool) -> Tensors:
    """The weights by GGUF name; q and k rows of a llama with neighbouring pairs."""
    named = {_name(name): t.clone() for name, t in model.state_dict().items() if ".experts." not in name}
    for name, t in model.state_dict().items():
        if name.endswith(".experts.gate_up_proj"):
            prefix = f"blk.{name.split('.')[2]}.ffn_"
            named[prefix + "gate_exps.weight"], named[prefix + "up_exps.weight"] = t.clone().chunk(2, 1)
        elif name.endswith(".experts.down_proj"):
            named[f"blk.{name.split('.')[2]}.ffn_down_exps.weight"] = t.clone()
    config = model.config
    if permuted:
        for name in named:
            if ".attn_q." in name or ".attn_k." in name:
                heads = config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads
                named[name] = interleave(named[name], heads)
    if config.tie_word_embeddings:
        del named["output.weight"]
    return named


def _name(name: str) -> str:
    if name in WHOLE:
        return WHOLE[name]
    _, _, layer, *rest, kind = name.split(".")
    return f"blk.{layer}.{BLOCK['.'.join(rest)]}.{kind}"


def interleave(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows i and i + d/2 of a head become rows 2i and 2i + 1."""
    return rows.view(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def metadata(model: transformers.PreTrainedModel, arch: str) -> dict[str, Any]:
    c = model.config
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    keys = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "rope.freq_base": float(c.rope_parameters["rope_theta"]),
    }
    if "moe" in arch:
        keys["expert_count"], keys["expert_used_count"] = c.num_experts, c.num_experts_per_tok
        keys["expert_feed_forward_length"] = c.moe_intermediate_size
    return keys


def write(
    path: Path, arch: str, keys: dict[str, Any], named: Tensors, kind: str = "F32", tokenizer: str | None = None
) -> Path:
    """A file. kind: the type of matrices whose rows are whole blocks of it. tokenizer: a tokenizer.json."""
    writer = gguf.GGUFWriter(path, arch)
    if tokenizer is not None:
        add_tokenizer(writer, json.loads(tokenizer))
    block, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    for key, value in keys.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        add[bool] = writer.add_bool
        add[type(value)](f"{arch}.{key}", value)
    for name, t in named.items():
        stored = gguf.GGMLQuantizationType[kind if t.dim() > 1 and t.shape[-1] % block == 0 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(t.float().numpy(), stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
