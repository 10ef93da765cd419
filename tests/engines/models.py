"""Tiny random models of transformers, saved as directories."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
import transformers

from tests.support.small_models import tokenizer_json
from tests.targets import layered
from tests.targets.tiny import model, save

SIZES = {"vocab_size": 320, "max_position_embeddings": 128}
GEMMA = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}


def gemma() -> transformers.PreTrainedModel:
    """A model with a window of 12 positions in two of three layers."""
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(**SIZES, **GEMMA, attn_implementation="sdpa")
    model = transformers.Gemma3ForCausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.25)
    return model


def gemma4() -> transformers.PreTrainedModel:
    """A model whose last two layers read the caches of the two before them, one of each pair with a window."""
    kinds = [layered.LOCAL, layered.FULL] * 2
    sizes = {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": kinds, "sliding_window": 12}
    sizes |= {"vocab_size_per_layer_input": SIZES["vocab_size"], "pad_token_id": None}
    return layered.scale_blocks(model("gemma4-e", 0, **SIZES, **sizes), 0)


OWN = {"gemma": gemma, "gemma4": gemma4}
"""Models of this module, by name."""


@cache
def directory(arch: str) -> Path:
    """A name in OWN or of ``tests.targets.tiny``, such as llama or qwen3next; with a tokenizer of 300 tokens."""
    loaded_model = OWN[arch]() if arch in OWN else model(arch, **SIZES)
    path = save(loaded_model, Path(mkdtemp()) / arch)
    (path / "tokenizer.json").write_text(tokenizer_json())
    return path


FOUR_HEADS = {
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


@cache
def four_heads() -> Path:
    """A random Llama whose heads two ranks can share, of sizes that the attention of vLLM's CPU build takes."""
    path = save(model("llama", **FOUR_HEADS), Path(mkdtemp()) / "four-heads")
    (path / "tokenizer.json").write_text(tokenizer_json())
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return path
