"""LFM3: short convolutions, and attention with and without a window whose heads have gates; norms on both sides of a
layer."""

from __future__ import annotations

from collections.abc import Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Add, Op
from spec_kernels.model.shapes import ConvShape

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.lfm2 import NAMES
from spec_targets.formats.stored_names import Name, stored_as

KERNEL = 7
"""Inputs of a convolution, where the config does not say."""
OWN: dict[str, Name] = {
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_gate.weight": stored_as("self_attn.gate_proj.weight", "self_attn.g_proj.weight"),
    "post_attention_norm.weight": "post_operator_norm.weight",
    "post_ffw_norm.weight": "post_ffn_norm.weight",
}


def from_gguf(keys: Keys) -> Config:
    raise keys.without_converter()


def from_hf(json: ConfigJson) -> Config:
    json.refuse(
        conv_bias=(None, False),
        attention_bias=(None, False),
        use_sandwich_norm=(True, None),
        use_attention_gate=(True, None),
    )
    layers = json.layers()
    kinds = json.kinds(layers, {"conv", "full_attention", "sliding_attention"}) or _usual(layers)
    json, local = json.split_rope()
    window = json.integer("sliding_window", 256)
    return json.decoder(
        ("layer_types",),
        eps=json.number("norm_eps", 1e-5),
        conv=ConvShape(json.integer("hidden_size"), json.integer("conv_L_cache", KERNEL)),
        recurrent=frozenset(i for i, kind in enumerate(kinds) if kind == "conv"),
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        **local,
    )


def _usual(layers: int) -> list[str]:
    """Types of blocks, where a config does not list them."""
    attention = {2: "full_attention", 0: "sliding_attention"}
    return [attention.get(i % 4, "conv") if i else "conv" for i in range(layers)]


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    if i in c.recurrent:
        assert c.conv is not None
        yield from b.short_conv(c.conv, residual=False)
    else:
        yield from b.attention(norms=True, biases=False, residual=False, own_gates=("sigmoid", b.shape.heads.heads))
    yield b.norm("h", "h", "post_attention_norm.weight")
    yield Add("x", "h", "x")
    yield b.norm("x", "h", "ffn_norm.weight")
    yield from b.mlp(c.ff, residual=False)
    yield b.norm("h", "h", "post_ffw_norm.weight")
    yield Add("x", "h", "x")


LFM3 = Family(
    name="lfm3",
    classes=("Lfm3ForCausalLM",),
    model_types=("lfm3",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=NAMES | OWN,
)
