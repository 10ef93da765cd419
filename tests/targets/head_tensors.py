"""Random tensors for a head of any trainer, by its config: what each class of theirs would save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from spec_targets.architectures.heads.lattice import Lattice
from torch import Tensor


def write_head(folder: Path, config: dict[str, Any]) -> Path:
    """A directory with this config and random tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    save_file({name: t.contiguous() for name, t in tensors_of(config).items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tensors_of(config: dict[str, Any]) -> dict[str, Tensor]:
    """Tensors by published names."""
    config = {**config, **config.get("transformer_layer_config", {})}
    first = config["architectures"][0]
    return (
        _blocks(config)
        if "dflash_config" in config or "block_size" in config
        else _pairs(config, "midlayer." if "Llama" in first else "layers.0.")
    )


def random(*shape: int) -> Tensor:
    return torch.randn(*shape) / 4


def _layer(c: dict[str, Any], prefix: str, reads: int, heads: int) -> dict[str, Tensor]:
    width, ff = c["hidden_size"], c["intermediate_size"]
    head = c.get("head_dim") or width // c["num_attention_heads"]
    q, kv = heads * head, c["num_key_value_heads"] * head
    shapes = {"q": (q, reads), "k": (kv, reads), "v": (kv, reads), "o": (width, q)}
    shapes = _latent_shapes(c, reads) if "kv_lora_rank" in c else shapes
    names = {x: x if "_with_" in x else f"{x}_proj" for x in shapes}
    named = {f"{prefix}self_attn.{names[x]}.weight": random(*shape) for x, shape in shapes.items()}
    if c.get("attention_bias"):
        biased = "qkvo" if c["architectures"] == ["LlamaEagle3DraftModel"] else "qkv"
        named |= {f"{prefix}self_attn.{x}_proj.bias": random(shapes[x][0]) for x in biased}
    ffn = {"gate": (ff, width), "up": (ff, width), "down": (width, ff)}
    named |= {f"{prefix}mlp.{x}_proj.weight": random(*shape) for x, shape in ffn.items()}
    if c.get("gating"):
        parts = [named.pop(f"{prefix}self_attn.{x}_proj.weight") for x in "qkv"]
        named[f"{prefix}self_attn.qkv_proj.weight"] = torch.cat(parts)
        named[f"{prefix}self_attn.g_proj.weight"] = random(q if c["gating"] == "per-element" else heads, width)
    return named | {f"{prefix}{x}_layernorm.weight": torch.ones(width) for x in ("input", "post_attention")}


def _latent_shapes(c: dict[str, Any], reads: int) -> dict[str, tuple[int, int]]:
    """Matrices of latent attention by name before ``_proj.weight``; norms are left out."""
    heads, rank, rotated = (c[key] for key in ("num_attention_heads", "kv_lora_rank", "qk_rope_head_dim"))
    wide = c["qk_nope_head_dim"]
    return {
        "q_a": (c["q_lora_rank"], reads),
        "q_b": (heads * (wide + rotated), c["q_lora_rank"]),
        "kv_b": (heads * (wide + c["v_head_dim"]), rank),
        "o": (c["hidden_size"], heads * c["v_head_dim"]),
        "kv_a_proj_with_mqa": (rank + rotated, reads),
    }


def _pairs(c: dict[str, Any], prefix: str) -> dict[str, Tensor]:
    width, vocab, rows = c["hidden_size"], c["vocab_size"], c.get("draft_vocab_size") or c["vocab_size"]
    target = c.get("target_hidden_size") or width
    named = _layer(c, prefix, 2 * width, c["num_attention_heads"]) | {f"{prefix}hidden_norm.weight": torch.ones(width)}
    named |= {
        "fc.weight": random(width, 3 * target),
        "norm.weight": torch.ones(width),
        "lm_head.weight": random(rows, width),
    }
    named |= {"embed_tokens.weight": random(vocab, width)}
    options = c.get("eagle_config") or {}
    if options.get("use_aux_hidden_state") is False:
        named = {name: t for name, t in named.items() if name not in ("fc.weight", f"{prefix}hidden_norm.weight")}
    if (options.get("parallel_draft_step") or 1) > 1:
        named |= {"parallel_draft_heads.0.medusa_layers.0.linear.weight": random(width, width)}
    if c.get("fc_norm"):
        named |= {f"fc_norm.{i}.weight": torch.ones(target) for i in range(3)}
    if rows < vocab:
        marks = torch.zeros(vocab, dtype=torch.bool)
        marks[torch.randperm(vocab)[:rows]] = True
        named |= {"d2t": marks.nonzero().flatten() - torch.arange(rows), "t2d": marks}
    return named


def _selector(c: dict[str, Any], kernel: int, rank: int) -> dict[str, Tensor]:
    """What DFlash 2 adds: convolutions within blocks, and codebooks of pairs of tokens."""
    width, vocab = c["hidden_size"], c["vocab_size"]
    names = [f"layers.{i}.{part}_conv" for i in range(c["num_hidden_layers"]) for part in ("attention", "mlp")]
    groups = width // 16
    return (
        {f"{name}.base_kernel": random(2, kernel, width) for name in names}
        | {f"{name}.kernel_projection.weight": random(2 * kernel * groups, width) for name in names}
        | {f"candidate_selector.{side}_codebook": random(vocab, rank) for side in ("predecessor", "successor")}
        | {"candidate_selector.hidden_projection.weight": random(rank, width)}
    )


def _blocks(c: dict[str, Any]) -> dict[str, Tensor]:
    width, options = c["hidden_size"], {**c, **c.get("dflash_config", {})}
    head = c.get("head_dim") or width // c["num_attention_heads"]
    taps = len(options.get("target_layer_ids") or range(c["num_hidden_layers"]))
    named = {
        "fc.weight": random(width, taps * width),
        "hidden_norm.weight": torch.ones(width),
        "norm.weight": torch.ones(width),
    }
    for i in range(c["num_hidden_layers"]):
        listed = c.get("num_attention_heads_per_layer") or [c["num_attention_heads"]] * c["num_hidden_layers"]
        named |= _layer(c, f"layers.{i}.", width, listed[i])
        named |= {f"layers.{i}.self_attn.{x}_norm.weight": torch.ones(head) for x in "qk"}
    if c.get("gating"):
        named |= {f"aux_hidden_norms.{i}.weight": torch.ones(width) for i in range(taps)}
    if "dspine_config" in c:
        rank, size = (c["dspine_config"][key] for key in ("transfer_rank", "message_size"))
        named |= {"transfer_codes": random(c["vocab_size"], rank), "injection.bias": random(size)}
        parts = ("message", "receiver_gate", "predecessor_gate")
        named |= {f"injection.{part}.weight": random(size, rank) for part in parts}
        for i in range(c["num_hidden_layers"]):
            named |= {f"injection.readouts.{i}.weight": random(rank, width)}
            named |= {f"injection.writes.{i}.weight": random(width, size)}
    if heads := options.get("lilicorr_num_heads"):
        own, factors = options["lilicorr_hidden_size"] or width, options["lilicorr_factor_dim"]
        lattice = Lattice(own, options["lilicorr_num_layers"], heads, 2 * own, factors, 1e-6, 1.0)
        shapes = lattice.tensor_shapes(width, c["block_size"], options["lilicorr_candidate_topk"])
        named |= {name: random(*shape) for name, shape in shapes.items()}
    if rank := options.get("selector_rank"):
        named |= _selector(c, options["conv_kernel_size"], rank)
    if rank := options.get("markov_rank"):
        named |= {f"markov_head.markov_w{i}.weight": random(c["vocab_size"], rank) for i in (1, 2)}
        if options.get("enable_confidence_head"):
            wide = width + (rank if options.get("confidence_head_with_markov") else 0)
            named |= {"confidence_head.proj.weight": random(1, wide), "confidence_head.proj.bias": torch.zeros(1)}
    return named
