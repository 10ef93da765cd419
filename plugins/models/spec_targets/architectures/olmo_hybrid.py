"""OLMo Hybrid: most blocks are gated delta nets with a norm before each branch, the others have attention with a norm
after each branch, and norms over all heads of q, and of k, together.

Released models have no positions, and delta nets whose updates are twice as strong as in other models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Add, Attend, Concat, Delta, Gate, Linear, Norm, Op, Store
from spec_kernels.model.shapes import DeltaShape
from torch import Tensor

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS, MLP
from spec_targets.formats.stored_names import Name, stored_as

INTERVAL = 4
"""Period of attention, in blocks, where the config does not list their types."""
OUTPUT_EPS = 1e-5
"""Epsilon of the norm after a delta net, whatever the config says."""
KEY_SHARE = 0.75
"""Width of all key heads as a share of the model's width, where the config does not say."""
NAMES: dict[str, Name] = {
    "attn_norm.weight": stored_as("attention_layer_norm.weight", "input_layernorm.weight"),
    "ffn_norm.weight": stored_as("feedforward_layer_norm.weight", "post_attention_layernorm.weight"),
    "post_attention_norm.weight": stored_as("post_attention_layernorm.weight", "feedforward_layer_norm.weight"),
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    "ssm_a": stored_as("linear_attn.A_log", change=lambda value, c: -value.float().exp()),
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_conv1d.weight": stored_as("linear_attn.conv1d.weight", change=lambda value, c: value[:, 0]),
    "ssm_beta.weight": "linear_attn.b_proj.weight",
    "ssm_alpha.weight": "linear_attn.a_proj.weight",
    "ssm_norm.weight": "linear_attn.o_norm.weight",
    "ssm_out.weight": "linear_attn.o_proj.weight",
    "ssm_z.weight": "linear_attn.g_proj.weight",
}
PARTS: dict[str, Name] = {
    f"ssm_conv1d_{x}.weight": stored_as(f"linear_attn.{x}_conv1d.weight", change=lambda value, c: value[:, 0])
    for x in "qkv"
} | {f"ssm_{x}.weight": f"linear_attn.{x}_proj.weight" for x in "qkv"}


def from_gguf(keys: Keys) -> Config:
    raise keys.without_converter()


def from_hf(json: ConfigJson) -> Config:
    json.refuse(attention_bias=(None, False))
    layers, rope = json.layers(), json.raw.get("rope_parameters")
    kinds = json.kinds(layers, {"linear_attention", "full_attention"})
    listed = (
        [kind == "linear_attention" for kind in kinds] if kinds else [bool((i + 1) % INTERVAL) for i in range(layers)]
    )
    return json.decoder(
        ("layer_types",),
        delta=_delta(json),
        recurrent=frozenset(i for i, delta in enumerate(listed) if delta),
        strength=1.0 if json.raw.get("linear_allow_neg_eigval") is False else 2.0,
        unrotated=isinstance(rope, Mapping) and rope.get("rope_theta") is None and json.raw.get("rope_theta") is None,
    )


def _delta(json: ConfigJson) -> DeltaShape:
    heads = json.integer("num_attention_heads")
    keys, values = (json.integer(f"linear_num_{kind}_heads", heads) for kind in ("key", "value"))
    key = json.integer("linear_key_head_dim", int(KEY_SHARE * json.integer("hidden_size") / keys) or 1)
    value = json.integer("linear_value_head_dim", 2 * key)
    return DeltaShape(keys, values, key, value, json.integer("linear_conv_kernel_dim", 4))


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    if i in c.recurrent:
        yield b.norm("x", "h", "attn_norm.weight")
        yield from _delta_net(b, c)
        yield b.norm("x", "h", "ffn_norm.weight")
        yield from b.mlp(c.ff)
        return
    yield from _attention(b)
    yield b.norm("h", "h", "post_attention_norm.weight")
    yield Add("x", "h", "x")
    yield from b.mlp(c.ff, x="x", residual=False)
    yield b.norm("h", "h", "post_ffw_norm.weight")
    yield Add("x", "h", "x")


def _attention(b: Builder) -> Iterator[Op]:
    """h = out(attention(norm(q), norm(k), v)) of the stream itself."""
    heads = b.shape.heads
    yield b.projection(("q", "k", "v"), biases=False, x="x")
    yield b.norm("q", "q", "attn_q_norm.weight", heads.q_width)
    yield b.norm("k", "k", "attn_k_norm.weight", heads.kv_width)
    yield from b.rotation("q")
    yield from b.rotation("k")
    yield Store("k", "v", heads, b.layer)
    yield Attend("q", "a", heads, b.layer)
    yield b.onto("a", "attn_output", (b.shape.width, heads.q_width), residual=False)


def _delta_net(b: Builder, c: Config) -> Iterator[Op]:
    """x + out(norm(delta(q, k, v)) · silu(z))"""
    s, width = c.delta, c.width
    assert s is not None
    widths = {"q": s.key_width, "k": s.key_width, "v": s.value_width}
    for some in (widths | {"z": s.value_width}, {"beta": s.value_heads, "alpha": s.value_heads}):
        inputs = tuple(b.matrix(f"ssm_{name}.weight", (n, width)) for name, n in some.items())
        yield Linear("h", tuple(some), inputs, (None,) * len(inputs))
    yield Concat(tuple(widths), "mix")
    yield Delta(
        *("mix", "beta", "alpha", "o"),
        shape=s,
        conv=_convolution(b, s, widths),
        rate=b.vector("ssm_a", s.value_heads),
        dt=b.vector("ssm_dt.bias", s.value_heads),
        layer=b.layer,
        strength=c.strength,
    )
    yield Norm("o", "o", b.vector("ssm_norm.weight", s.value_dim), OUTPUT_EPS)
    yield Gate("o", "z", "o", "silu")
    yield b.linear("o", "x", "ssm_out", (width, s.value_width), add="x")


def _convolution(b: Builder, delta: DeltaShape, widths: Mapping[str, int]) -> Tensor:
    """float32 [W, C], of one tensor or of three: for each of q, k and v, or of any sizes, as transformers splits it."""
    if b.has("ssm_conv1d.weight"):
        return b.read("ssm_conv1d.weight", (delta.channels, delta.kernel)).T.contiguous()
    stored = {x: b.source.shape(f"{b.prefix}ssm_conv1d_{x}.weight") or (0,) for x in widths}
    counts = {x: shape[0] for x, shape in stored.items()}
    counts = counts if sum(counts.values()) == delta.channels else dict(widths)
    parts = [b.read(f"ssm_conv1d_{x}.weight", (n, delta.kernel)) for x, n in counts.items()]
    return torch.cat(parts).T.contiguous()


OLMO_HYBRID = Family(
    name="olmo-hybrid",
    classes=("OlmoHybridForCausalLM",),
    model_types=("olmo_hybrid",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS | ATTENTION | MLP | NAMES | PARTS,
)
