"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: fused projections, longrope, a window in some."""

from __future__ import annotations

from collections.abc import Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import DECODER


def from_gguf(keys: Keys) -> Config:
    window = keys.integer("attention.sliding_window", 0)
    return keys.decoder(windows=(window,) * keys.layers() if window else ())


def from_hf(json: ConfigJson) -> Config:
    json.refuse(attention_bias=(None, False))
    return json.decoder(("layer_types",), windows=json.everywhere())


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=False, biases=False)
    yield b.norm("x", "h", "ffn_norm.weight")
    yield from b.mlp(c.ff, fused=True)


PHI3 = Family(
    name="phi3",
    classes=("Phi3ForCausalLM",),
    model_types=("phi3",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=DECODER | {"attn_qkv.weight": "self_attn.qkv_proj.weight", "ffn_up.weight": "mlp.gate_up_proj.weight"},
)
