"""Models of the zoo as Hugging Face directories, written from their GGUF files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from spec_core import load

CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen35": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
}


GLOBAL = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}
BLOCK = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
}
BLOCK |= {f"attn_{x}.weight": f"self_attn.{x}_proj.weight" for x in "qkv"}
BLOCK |= {f"ffn_{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")}
DELTA = {"attn_qkv.weight": "linear_attn.in_proj_qkv.weight", "attn_gate.weight": "linear_attn.in_proj_z.weight"}
NEXTN = {
    "eh_proj.weight": "fc.weight",
    "enorm.weight": "pre_fc_norm_embedding.weight",
    "hnorm.weight": "pre_fc_norm_hidden.weight",
    "shared_head_norm.weight": "norm.weight",
}


@cache
def directory(model: str) -> Path:
    """The directory of ``zoo:NAME`` or ``gguf:FILE``, of architecture llama, qwen3 or qwen35; float32."""
    read, path = load(model, weights=False), Path(mkdtemp()) / model.partition(":")[2].rpartition("/")[2]
    config, weights = read.config, read.weights
    named = {}
    for name in weights.names():
        named |= _tensor(name, weights.load(name), config, weights.interleaved)
    path.mkdir()
    save_file({name: t.contiguous() for name, t in named.items()}, path / "model.safetensors", {"format": "pt"})
    _config(config, "output.weight" not in set(weights.names()), read.tokenizer).save_pretrained(path)
    _write_tokenizer(read.tokenizer, path)
    return path


def _config(c: Any, tied: bool, words: Any) -> Any:
    kind, model = CLASSES[c.arch]
    more: dict[str, Any] = {}
    if c.delta is not None:
        d = c.delta
        kinds = ["linear_attention" if i in c.recurrent else "full_attention" for i in range(c.layers)]
        more = {
            "layer_types": kinds,
            "linear_num_key_heads": d.key_heads,
            "linear_num_value_heads": d.value_heads,
            "linear_key_head_dim": d.key_dim,
            "linear_value_head_dim": d.value_dim,
            "linear_conv_kernel_dim": d.kernel,
            "mtp_num_hidden_layers": c.nextn,
        }
    rope = {"rope_type": "default", "rope_theta": c.rope_base, "partial_rotary_factor": c.rotary_dim / c.head}
    return getattr(transformers, kind)(
        vocab_size=c.vocab, hidden_size=c.width, intermediate_size=c.ff, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head, rms_norm_eps=c.eps,
        max_position_embeddings=c.context, tie_word_embeddings=tied, rope_parameters=rope, architectures=[model],
        bos_token_id=words.bos, eos_token_id=sorted(words.eog), **more,
    )  # fmt: skip


def _tensor(name: str, value: Tensor, config: Any, interleaved: bool) -> dict[str, Tensor]:
    """The tensor under its name in a directory."""
    parts = name.split(".", 2)
    if parts[0] != "blk":
        return {
            "lm_head.weight" if name == "output.weight" else f"model.{GLOBAL[name]}": _less_one(name, value, config)
        }
    number, rest = int(parts[1]), parts[2]
    stem = f"model.layers.{number}." if number < config.layers else f"mtp.layers.{number - config.layers}."
    if rest.startswith("nextn."):
        return {f"mtp.{NEXTN[rest.removeprefix('nextn.')]}": _less_one(name, value, config)}
    if interleaved and rest in ("attn_q.weight", "attn_k.weight"):
        heads = config.heads if "_q" in rest else config.kv_heads
        value = value.view(heads, -1, 2, value.shape[-1]).transpose(1, 2).reshape(value.shape)
    if config.delta is not None and number in config.recurrent:
        value = _group(rest, value, config.delta)
    own = DELTA[rest] if rest in DELTA else BLOCK[rest]
    if rest == "ssm_a":
        value = (-value).log()
    return {stem + own: _less_one(name, value[:, None] if rest == "ssm_conv1d.weight" else value, config)}


def _less_one(name: str, value: Tensor, config: Any) -> Tensor:
    """Norm weights of this family are stored less 1, those inside gated delta nets excepted."""
    return value - 1 if config.delta is not None and "norm" in name and "ssm_norm" not in name else value


def _group(rest: str, value: Tensor, d: Any) -> Tensor:
    """Value heads of one key head beside each other; in GGUF head v belongs to key head v modulo their number."""
    if rest == "ssm_norm.weight" or not (rest.startswith("ssm_") or rest in DELTA):
        return value
    heads = torch.arange(d.value_heads).view(-1, d.key_heads).T.flatten()
    rows = (heads[:, None] * d.value_dim + torch.arange(d.value_dim)).flatten()
    if rest in ("ssm_beta.weight", "ssm_alpha.weight", "ssm_a", "ssm_dt.bias"):
        return value[heads]
    if rest == "ssm_out.weight":
        return value[:, rows]
    keys = len(value) - len(rows)
    return torch.cat([value[:keys], value[keys:][rows]])


def _write_tokenizer(words: Any, path: Path) -> None:
    raw = json.loads(words.backend.to_str())
    known = {token["id"] for token in raw.get("added_tokens", [])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    raw["added_tokens"] = sorted(
        [*raw.get("added_tokens", []), *({"id": i, "content": words.pieces[i]} | flags for i in words.control - known)],
        key=lambda token: token["id"],
    )
    (path / "tokenizer.json").write_text(json.dumps(raw))
    bos = None if words.bos is None else words.pieces[words.bos]
    (path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "bos_token": bos,
                "add_bos_token": words.encode("a")[:1] == [words.bos],
                "chat_template": words.chat_template,
            }
        )
    )
