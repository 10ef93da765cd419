"""Random models of Ministral 3 of transformers, and GGUF files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from tests.targets import written
from tests.targets.tiny import MINISTRAL, model

FAMILIES = ("ministral3",)
ROPE = MINISTRAL["rope_parameters"]
KEYS = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": ROPE["factor"],
    "rope.scaling.original_context_length": ROPE["original_max_position_embeddings"],
    "rope.scaling.yarn_beta_fast": ROPE["beta_fast"],
    "rope.scaling.yarn_beta_slow": ROPE["beta_slow"],
    "rope.scaling.yarn_log_multiplier": 1.0,
    "attention.temperature_scale": ROPE["llama_4_scaling_beta"],
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    return model(family, seed)


def write_gguf(network: PreTrainedModel, family: str, path: Path, tokenizer: str | None = None, **changed: Any) -> Path:
    """The file that llama.cpp's converter makes of a model. changed: other values of its keys, None: left out."""
    keys = written.metadata(network, "mistral3") | KEYS | changed
    known = {name: value for name, value in keys.items() if value is not None}
    return written.write(path, "mistral3", known, written.tensors(network, True), tokenizer=tokenizer)
