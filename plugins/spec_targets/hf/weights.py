"""Tensors of a Hugging Face directory under their GGUF names."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from spec_targets.files.safetensors import StoredTensor, open_directory
from spec_targets.runtime.config import Config

GLOBAL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "output.bias": "lm_head.bias",
}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
FUSED = {"ffn_gate_up_exps": "mlp.experts.gate_up_proj", "ffn_down_exps": "mlp.experts.down_proj"}
NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


class HfWeights:
    """Rows of q and k are in the order of this format already; experts are stacked when they lie apart."""

    neighbours = False

    def __init__(self, directory: Path, config: Config) -> None:
        self.tensors = open_directory(directory)
        self.config = config
        self.where = directory.name

    def names(self) -> tuple[str, ...]:
        return ()

    def shape(self, name: str) -> tuple[int, ...] | None:
        stored = self._stored(name)
        if stored is not None:
            return stored.shape
        apart = self._apart(name)
        return (len(apart), *apart[0].shape) if apart else None

    def load(self, name: str) -> Tensor:
        stored = self._stored(name)
        return torch.stack([t.load() for t in self._apart(name)]) if stored is None else stored.load()

    def _stored(self, name: str) -> StoredTensor | None:
        if name == "output.weight" and self.config_ties:
            return None
        if name in GLOBAL:
            return self.tensors.get(GLOBAL[name])
        if (match := NAME.fullmatch(name)) is None:
            return None
        prefix = f"model.layers.{match[1]}."
        if match[2] in FUSED and (prefix + FUSED[match[2]]) in self.tensors:
            return self.tensors[prefix + FUSED[match[2]]]
        return self.tensors.get(f"{prefix}{BLOCK.get(match[2], '?')}.{match[3]}")

    @property
    def config_ties(self) -> bool:
        """Without a head of its own the model uses its embedding."""
        return "lm_head.weight" not in self.tensors

    def _apart(self, name: str) -> list[StoredTensor]:
        """The tensors of all experts; empty unless every one is there with the same shape."""
        match = NAME.fullmatch(name)
        if match is None or match[2] not in EXPERTS:
            return []
        stem = f"model.layers.{match[1]}.mlp.experts."
        found = [self.tensors.get(f"{stem}{e}.{EXPERTS[match[2]]}.weight") for e in range(self.config.experts)]
        return found if found and all(t is not None and t.shape == found[0].shape for t in found) else []
