"""Tiny random models of the families with windows, as directories with a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.small_models import tokenizer_json
from tests.targets.tiny import model, save

FAMILIES = ("mistral", "phi3", "gemma2", "gemma3", "gemma4-e", "gpt-oss")
SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "max_position_embeddings": 256,
    "sliding_window": 9,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": 297,
}
"""The window is shorter than the texts; the end is the first special token."""
MORE: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 20.0},
    "gemma3": {"head_dim": 8, "query_pre_attn_scalar": 8},
    "gemma4-e": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 300,
    },
    "gpt-oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
}


def tiny_family(family: str, folder: Path, **sizes: Any) -> Path:
    directory = save(model(family, 0, **{**SIZES, **MORE.get(family, {}), **sizes}), folder)
    (directory / "tokenizer.json").write_text(tokenizer_json(), "utf-8")
    return directory
