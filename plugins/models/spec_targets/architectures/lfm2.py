"""LFM2 and LFM2.5: most blocks are short convolutions, the others have attention; dense or with experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op
from spec_kernels.model.shapes import ConvShape

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name, stored_as

SIGMOID = 2
"""``expert_gating_func`` of sigmoid scores."""
NAMES: dict[str, Name] = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "embedding_norm.weight",
    "output.weight": "/lm_head.weight",
    "attn_norm.weight": "operator_norm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q_norm.weight": "self_attn.q_layernorm.weight",
    "attn_k_norm.weight": "self_attn.k_layernorm.weight",
    "attn_output.weight": "self_attn.out_proj.weight",
    "shortconv.in_proj.weight": "conv.in_proj.weight",
    "shortconv.conv.weight": stored_as("conv.conv.weight", change=lambda value, c: value[:, 0]),
    "shortconv.out_proj.weight": "conv.out_proj.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "ffn_gate.weight": "feed_forward.w1.weight",
    "ffn_up.weight": "feed_forward.w3.weight",
    "ffn_down.weight": "feed_forward.w2.weight",
    "ffn_gate_inp.weight": "feed_forward.gate.weight",
    "exp_probs_b.bias": "feed_forward.expert_bias",
    "ffn_gate_exps.weight": "feed_forward.experts.{}.w1.weight",
    "ffn_up_exps.weight": "feed_forward.experts.{}.w3.weight",
    "ffn_gate_up_exps.weight": "feed_forward.experts.gate_up_proj",
    "ffn_down_exps.weight": stored_as("feed_forward.experts.down_proj", "feed_forward.experts.{}.w2.weight"),
}
RENAMED = {"token_embd_norm.weight": "output_norm.weight"}


def from_gguf(keys: Keys, **more: Any) -> Config:
    """A block is a convolution if it has no key heads."""
    kv_heads = keys.integers("attention.head_count_kv", keys.layers())
    counts = set(kv_heads) - {0}
    if len(counts) != 1:
        raise UsageError(
            f"{keys.where}: {keys.arch}.attention.head_count_kv is {str(kv_heads)[:60]}, "
            "0 and one other number were needed",
            hint="such models are not supported",
        )
    recurrent = frozenset(i for i, count in enumerate(kv_heads) if not count)
    conv = ConvShape(keys.integer("embedding_length"), keys.integer("shortconv.l_cache"))
    return keys.decoder(kv_heads=counts.pop(), conv=conv, recurrent=recurrent, **more)


def moe_from_gguf(keys: Keys) -> Config:
    function = keys.integer("expert_gating_func", SIGMOID)
    if function != SIGMOID:
        raise UsageError(
            f"{keys.where}: {keys.arch}.expert_gating_func is {function}, {SIGMOID} was needed", hint=AGAIN
        )
    return from_gguf(keys, experts=keys.experts(sigmoid=True))


def from_hf(json: ConfigJson, **more: Any) -> Config:
    json.refuse(conv_bias=(None, False))
    sizes: dict[str, Any] = dict(
        eps=json.number("norm_eps", 1e-5),
        conv=ConvShape(json.integer("hidden_size"), json.integer("conv_L_cache", 3)),
        recurrent=_convolutions(json, json.layers()),
    )
    return json.decoder(("layer_types",), **(sizes | more))


def dense_from_hf(json: ConfigJson) -> Config:
    return from_hf(json, ff=_ff_of(json))


def moe_from_hf(json: ConfigJson) -> Config:
    return from_hf(
        json,
        ff=json.integer("intermediate_size"),
        experts=json.experts(sigmoid=True, normalise=True),
        expert_ff=json.integer("moe_intermediate_size"),
        dense=json.integer("num_dense_layers", 0),
    )


def _convolutions(json: ConfigJson, layers: int) -> frozenset[int]:
    """The blocks that ``layer_types`` lists, or all but ``full_attn_idxs``."""
    kinds = json.kinds(layers, {"conv", "full_attention"})
    if kinds is not None:
        return frozenset(i for i, kind in enumerate(kinds) if kind == "conv")
    attending = json.raw.get("full_attn_idxs")
    if not isinstance(attending, list) or not all(type(i) is int and 0 <= i < layers for i in attending):
        raise UsageError(
            f"{json.where}: config.json has full_attn_idxs = {str(attending)[:60]!r}",
            hint=f"a list of blocks, 0 to {layers - 1}, is needed, or layer_types",
        )
    return frozenset(range(layers)) - set(attending)


def _ff_of(json: ConfigJson) -> int:
    """Width of the feed-forward layer: two thirds of the stated one, times a factor, rounded up."""
    stated = json.integer("block_ff_dim", 0) or json.integer("intermediate_size")
    if not json.raw.get("block_auto_adjust_ff_dim", True):
        return stated
    multiple = json.integer("block_multiple_of", 256)
    ff = int(json.number("block_ffn_dim_multiplier", 1.0) * (2 * stated // 3))
    return -(-ff // multiple) * multiple


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    if i in c.recurrent:
        assert c.conv is not None
        yield from b.short_conv(c.conv)
    else:
        yield from b.attention(norms=True, biases=False)
    yield b.norm("x", "h", "ffn_norm.weight")
    if c.experts is None or i < c.dense:
        yield from b.mlp(c.ff)
    else:
        yield from b.mixture(c.experts, c.expert_ff)


LFM2 = Family(
    name="lfm2",
    classes=("Lfm2ForCausalLM",),
    model_types=("lfm2",),
    gguf=from_gguf,
    hf=dense_from_hf,
    block=block,
    names=NAMES,
    renamed=RENAMED,
)
LFM2_MOE = Family(
    name="lfm2moe",
    classes=("Lfm2MoeForCausalLM",),
    model_types=("lfm2_moe",),
    gguf=moe_from_gguf,
    hf=moe_from_hf,
    block=block,
    names=NAMES,
    renamed=RENAMED,
)
