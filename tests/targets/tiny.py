"""Tiny random models of transformers, saved as directories that our targets read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "qwen3moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
}
SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}


def model(arch: str, seed: int = 0, **config: Any) -> PreTrainedModel:
    """A float32 model whose logits are of size 1, biases and norm weights included in the randomness."""
    torch.manual_seed(seed)
    make_config, make = CLASSES[arch]
    sizes = SIZES | (EXPERTS if arch == "qwen3moe" else {}) | config
    made = make(make_config(**sizes, attn_implementation="eager")).eval()
    made.config._experts_implementation = "eager"
    for name, parameter in made.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.25)
    return made


def saved(made: PreTrainedModel, directory: Path, **options: Any) -> Path:
    made.save_pretrained(directory, **options)
    return directory


@torch.no_grad()
def logits(made: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """[T, V] float32"""
    return made(torch.tensor([tokens])).logits[0].float()
