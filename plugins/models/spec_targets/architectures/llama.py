"""Llama 2 and 3, Mistral with its window, and models of their architecture; as GGUF also mixtures of experts (Mixtral).

GGUF files of Mistral do not contain its window.
"""

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
    return keys.decoder(experts=keys.experts())


def from_hf(json: ConfigJson) -> Config:
    if json.kind in ("MistralForCausalLM", "mistral"):
        return json.decoder(("layer_types",), windows=json.everywhere())
    return json.decoder()


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=False)
    yield b.norm("x", "h", "ffn_norm.weight")
    if c.experts is None or i < c.dense:
        yield from b.mlp(c.ff)
    else:
        yield from b.mixture(c.experts, c.expert_ff)


LLAMA = Family(
    name="llama",
    classes=("LlamaForCausalLM", "MistralForCausalLM"),
    model_types=("llama", "mistral"),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=DECODER,
    interleaved=True,
)
