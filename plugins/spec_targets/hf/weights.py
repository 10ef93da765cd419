"""Tensors of a Hugging Face directory by their GGUF names."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch
from spec_kernels.model.source import bytes_of
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.files.safetensors import StoredTensor, open_directory
from spec_targets.runtime.config import Config

GLOBAL = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
}
HEAD = {"output.weight": "lm_head.weight", "output.bias": "lm_head.bias"}
BLOCK = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_output.bias": "self_attn.o_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
    "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
}
BLOCK |= {f"attn_{x}.{kind}": f"self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")}
DELTA = {"attn_qkv.weight": "linear_attn.in_proj_qkv.weight", "attn_gate.weight": "linear_attn.in_proj_z.weight"}
NEXTN = {
    "eh_proj.weight": ("eh_proj.weight", "fc.weight"),
    "enorm.weight": ("enorm.weight", "pre_fc_norm_embedding.weight"),
    "hnorm.weight": ("hnorm.weight", "pre_fc_norm_hidden.weight"),
    "shared_head_norm.weight": ("shared_head.norm.weight", "norm.weight"),
    "shared_head_head.weight": ("shared_head.head.weight", ""),
    "embed_tokens.weight": ("embed_tokens.weight", ""),
}
"""Names after ``model.layers.N.`` (DeepSeek-V3, GLM-4.5), and after ``mtp.`` (Qwen)."""
EXPERTS = {"ffn_gate_exps.weight": "gate_proj", "ffn_up_exps.weight": "up_proj", "ffn_down_exps.weight": "down_proj"}
FUSED = {"ffn_gate_up_exps.weight": "mlp.experts.gate_up_proj", "ffn_down_exps.weight": "mlp.experts.down_proj"}
SHARED = re.compile(r"ffn_(gate|up|down)_shexp\.weight")
NAME = re.compile(r"blk\.(\d+)\.(.+)")
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8}
FLOATS = tuple(SIZES)
PREFIXES = ("model.language_model.", "model.")


class HfWeights:
    """Rows of q and k keep the order of this format; separate experts are stacked.

    Norm weights stored less 1, decays stored as logarithms, and interleaved projections are converted to
    the form of GGUF.
    """

    interleaved = False

    def __init__(self, directory: Path, config: Config) -> None:
        self.tensors = open_directory(directory)
        self.config = config
        self.where = directory.name
        self.prefix = next((p for p in PREFIXES if f"{p}embed_tokens.weight" in self.tensors), "model.")

    def names(self) -> tuple[str, ...]:
        return ()

    def shape(self, name: str) -> tuple[int, ...] | None:
        rows = self._interleaved(name)
        if rows is not None:
            return (len(rows), self.config.width)
        stored = self._stored(name)
        if stored is not None:
            self._check_type(stored)
            return stored.shape[::2] if name.endswith("ssm_conv1d.weight") else stored.shape
        apart = self._apart(name)
        return (len(apart), *apart[0].shape) if apart else None

    def load(self, name: str) -> Tensor:
        rows = self._interleaved(name)
        if rows is not None:
            return self._whole(name).load()[rows]
        stored = self._stored(name)
        if stored is None:
            return torch.stack([t.load() for t in self._apart(name)])
        value = stored.load()
        if name.endswith("ssm_conv1d.weight"):
            return value[:, 0]
        if name.endswith(".ssm_a"):
            return -value.float().exp()
        less_one = self.config.facts.plus_one and "norm" in name and "ssm_norm" not in name
        return value.float() + 1 if less_one else value

    def type(self, name: str) -> str:
        whole = self._whole(name) if self._interleaved(name) is not None else self._stored(name)
        return (whole or self._apart(name)[0]).type

    def nbytes(self, name: str) -> int:
        return math.prod(self.shape(name)) * SIZES[self.type(name)]

    def blocks(self, name: str) -> Tensor:
        return bytes_of(self.load(name))

    def _check_type(self, stored: StoredTensor) -> None:
        if stored.type not in FLOATS:
            raise UsageError(
                f"{self.where}: tensor {stored.name!r} is of type {stored.type}, which is not supported",
                hint=f"use a model with weights of {', '.join(FLOATS)}, or a GGUF of it",
            )

    def _stored(self, name: str) -> StoredTensor | None:
        if name in HEAD:
            return self.tensors.get(HEAD[name])
        if name in GLOBAL:
            return self.tensors.get(self.prefix + GLOBAL[name])
        if (match := NAME.fullmatch(name)) is None:
            return None
        number, rest = int(match[1]), match[2]
        if rest.startswith("nextn."):
            return self._nextn(number, rest.removeprefix("nextn."))
        stem = self._stem(number)
        if rest in FUSED and stem + FUSED[rest] in self.tensors:
            return self.tensors[stem + FUSED[rest]]
        if self.config.delta is not None and rest in DELTA:
            return self.tensors.get(stem + DELTA[rest])
        if shared := SHARED.fullmatch(rest):
            names = (f"{stem}mlp.{kind}.{shared[1]}_proj.weight" for kind in ("shared_expert", "shared_experts"))
            return next((self.tensors[n] for n in names if n in self.tensors), None)
        return self.tensors.get(stem + BLOCK.get(rest, "?"))

    @property
    def has_nextn(self) -> bool:
        """Whether there is a NextN layer, which some configs do not count."""
        return f"mtp.{NEXTN['eh_proj.weight'][1]}" in self.tensors

    def _stem(self, block: int) -> str:
        """The name prefix of a block; in some families it differs for blocks after the trunk."""
        after = block - self.config.layers
        own = f"mtp.layers.{after}."
        return own if after >= 0 and f"{own}input_layernorm.weight" in self.tensors else f"{self.prefix}layers.{block}."

    def _nextn(self, block: int, rest: str) -> StoredTensor | None:
        if rest not in NEXTN:
            return None
        first, second = NEXTN[rest]
        return self.tensors.get(f"{self.prefix}layers.{block}.{first}") or self.tensors.get(f"mtp.{second}")

    def _whole(self, name: str) -> StoredTensor | None:
        """The fused projection of q, k, v and z, for one of their GGUF names."""
        match = NAME.fullmatch(name)
        if self.config.delta is None or match is None or match[2] not in DELTA:
            return None
        return self.tensors.get(f"{self._stem(int(match[1]))}linear_attn.in_proj_qkvz.weight")

    def _interleaved(self, name: str) -> Tensor | None:
        """Rows of that projection in the order q, k, v, or z; per key head it has [q | k | v | z]."""
        whole = self._whole(name)
        s = self.config.delta
        if whole is None or whole.shape != (s.channels + s.value_width, self.config.width):
            return None
        values = s.value_width // s.key_heads
        rows = torch.arange(whole.shape[0]).view(s.key_heads, -1).split([s.key_dim, s.key_dim, values, values], dim=1)
        return torch.cat([part.flatten() for part in (rows[:3] if name.endswith("attn_qkv.weight") else rows[3:])])

    def _apart(self, name: str) -> list[StoredTensor]:
        """The tensors of all experts; empty unless all exist with the same shape."""
        match = NAME.fullmatch(name)
        if match is None or match[2] not in EXPERTS or self.config.experts is None:
            return []
        stem = f"{self._stem(int(match[1]))}mlp.experts."
        each = range(self.config.experts.count)
        found = [self.tensors.get(f"{stem}{e}.{EXPERTS[match[2]]}.weight") for e in each]
        return found if found and all(t is not None and t.shape == found[0].shape for t in found) else []
