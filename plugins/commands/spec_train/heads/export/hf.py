"""Writes a head as a Hugging Face directory: SafeAILab (eagle3), z-lab (dflash) and speculators (all kinds)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from spec_core import Target
from spec_train.heads.export.trained import Trained
from spec_train.heads.shape import Shape

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
}
LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_norm_2.weight": "hidden_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
} | {f"attn_{x}.weight": f"self_attn.{x}_proj.weight" for x in "qkv"}
ARCHITECTURES = {"eagle3": "Eagle3Speculator", "dflash": "DFlashSpeculator", "dspark": "DSparkSpeculator"}
"""Names of speculators for its classes."""
VERSION = "0.9.0"
"""Version of speculators whose layout is written."""


def write_hf(path: Path, trained: Trained, config: dict[str, Any], kind: str, only: str | None = None) -> None:
    """config.json and model.safetensors. only: prefix of the tensor names of a head with one layer."""
    path.mkdir()
    named = {name_of(name, only): t.to(TYPES[kind]).contiguous() for name, t in trained.weights.items()}
    try:
        save_file(named | mapping(trained.d2t, trained.shape.vocab), path / "model.safetensors", {"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from error
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def name_of(name: str, only: str | None) -> str:
    """The name of a tensor in these layouts."""
    if not name.startswith("blk."):
        return NAMES.get(name, name)
    _, layer, rest = name.split(".", 2)
    return f"{only or f'layers.{layer}.'}{LAYER[rest]}"


def mapping(d2t: Tensor | None, vocab: int) -> dict[str, Tensor]:
    """d2t: token id minus row index. t2d: whether a token can be drafted."""
    if d2t is None:
        return {}
    draftable = torch.zeros(vocab, dtype=torch.bool)
    draftable[d2t] = True
    return {"d2t": d2t - torch.arange(len(d2t)), "t2d": draftable}


def layer_config(shape: Shape, model_type: str) -> dict[str, Any]:
    """Sizes under the names of transformers."""
    return {
        "model_type": model_type,
        "vocab_size": shape.vocab,
        "hidden_size": shape.width,
        "intermediate_size": shape.ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_base,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    }


def safeailab(trained: Trained, target: Target) -> dict[str, Any]:
    s = trained.shape
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **layer_config(s, "llama"),
        "draft_vocab_size": s.draft_vocab,
        "target_hidden_size": s.target_width,
        "eagle_aux_hidden_state_layer_ids": list(s.sources),
        "norm_before_residual": s.norm_before_residual,
        "final_norm": True,
        "torch_dtype": "float32",
    }


def speculators(trained: Trained, target: Target) -> dict[str, Any]:
    s = trained.shape
    eagle3 = not s.fills_blocks
    own: dict[str, Any] = {
        "norm_before_residual": s.norm_before_residual,
        "norm_before_fc": s.norm_before_fc,
        "target_hidden_size": s.target_width,
        "eagle_aux_hidden_state_layer_ids": list(s.sources),
        "final_norm": True,
    }
    if not eagle3:
        own = {"block_size": s.block, "mask_token_id": s.mask, "aux_hidden_state_layer_ids": list(s.sources)}
        own |= {"sample_from_anchor": False}
    if s.markov:
        own |= {"markov_rank": s.markov, "markov_head_type": "vanilla"}
        own |= {"enable_confidence_head": True, "confidence_head_with_markov": True}
    drafts = 5 if eagle3 else s.block - 1
    return {
        "architectures": [ARCHITECTURES[s.kind]],
        "speculators_model_type": s.kind,
        "speculators_version": VERSION,
        "draft_vocab_size": s.draft_vocab,
        **own,
        "transformer_layer_config": layer_config(s, "llama" if eagle3 else "qwen3"),
        "speculators_config": {
            "algorithm": s.kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": drafts}],
            "verifier": {"name_or_path": target.info.name, "architectures": []},
        },
        "tie_word_embeddings": False,
    }


def z_lab(trained: Trained, target: Target) -> dict[str, Any]:
    """z-lab counts hidden states as outputs of blocks, from 0."""
    s = trained.shape
    return {
        "architectures": ["DFlashDraftModel"],
        **layer_config(s, "qwen3"),
        "layer_types": ["full_attention"] * s.layers,
        "use_sliding_window": False,
        "sliding_window": None,
        "block_size": s.block,
        "num_target_layers": target.info.layers,
        "dflash_config": {"mask_token_id": s.mask, "target_layer_ids": [i - 1 for i in s.sources]},
        "torch_dtype": "float32",
    }
