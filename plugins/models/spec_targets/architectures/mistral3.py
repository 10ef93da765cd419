"""Ministral 3: blocks of Llama with yarn, whose queries grow with their position; also the target of Nemotron-Labs.

Hugging Face's ``llama_4_scaling_beta`` is the growth, and the original context its period (see ``RotaryTable``).
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import DECODER
from spec_targets.architectures.rope import yarn_attention


def from_gguf(keys: Keys) -> Config:
    """In these files a factor in place of yarn's own is the logarithm's."""
    config, divisor = keys.decoder(), keys.number("rope.scaling.yarn_log_multiplier", 0.0)
    scaling = attrs.evolve(config.scaling, growth=keys.number("attention.temperature_scale", 0.0))
    if scaling.kind == "yarn" and divisor:
        scaling = attrs.evolve(scaling, attention=scaling.attention / yarn_attention(scaling.factor, divisor))
    return attrs.evolve(config, scaling=scaling)


def from_hf(json: ConfigJson) -> Config:
    return json.decoder(("layer_types",), windows=json.everywhere())


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=False, query_table=1 if c.scaling.growth else None)
    yield b.norm("x", "h", "ffn_norm.weight")
    yield from b.mlp(c.ff)


MISTRAL3 = Family(
    name="mistral3",
    classes=("Ministral3ForCausalLM", "NemotronLabsDiffusionModel"),
    model_types=("ministral3", "nemotron_labs_diffusion"),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=DECODER,
    interleaved=True,
)
