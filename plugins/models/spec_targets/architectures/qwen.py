"""Qwen2 and Qwen2.5, Qwen3, and the mixtures of experts of Qwen3."""

from __future__ import annotations

from collections.abc import Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import DECODER, EXPERTS


def moe_from_gguf(keys: Keys) -> Config:
    return keys.decoder(experts=keys.experts())


def moe_from_hf(json: ConfigJson) -> Config:
    return json.decoder(experts=json.experts(), expert_ff=json.integer("moe_intermediate_size"))


def qwen2(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=False, biases=True)
    yield b.norm("x", "h", "ffn_norm.weight")
    yield from b.mlp(c.ff)


def qwen3(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=True)
    yield b.norm("x", "h", "ffn_norm.weight")
    if c.experts is None or i < c.dense:
        yield from b.mlp(c.ff)
    else:
        yield from b.mixture(c.experts, c.expert_ff)


QWEN2 = Family(
    name="qwen2",
    classes=("Qwen2ForCausalLM",),
    model_types=("qwen2",),
    gguf=Keys.decoder,
    hf=ConfigJson.decoder,
    block=qwen2,
    names=DECODER,
)
QWEN3 = Family(
    name="qwen3",
    classes=("Qwen3ForCausalLM",),
    model_types=("qwen3",),
    gguf=Keys.decoder,
    hf=ConfigJson.decoder,
    block=qwen3,
    names=DECODER,
)
QWEN3_MOE = Family(
    name="qwen3moe",
    classes=("Qwen3MoeForCausalLM",),
    model_types=("qwen3_moe",),
    gguf=moe_from_gguf,
    hf=moe_from_hf,
    block=qwen3,
    names=DECODER | EXPERTS,
)
