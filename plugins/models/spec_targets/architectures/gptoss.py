"""gpt-oss: attention with sinks, and experts with biases and a clamped gated unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS
from spec_targets.formats.stored_names import Name, stored_as

PATTERN = 2
"""Period of attention, in blocks: the last block of a period attends to everything, the others have a window."""
FUSED, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"


def gate_rows(value: Tensor, c: Config) -> Tensor:
    """Rows of gate and up take turns."""
    return value[:, ::2]


def up_rows(value: Tensor, c: Config) -> Tensor:
    return value[:, 1::2]


NAMES: dict[str, Name] = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_sinks.weight": "self_attn.sinks",
    "ffn_gate_inp.weight": "mlp.router.weight",
    "ffn_gate_inp.bias": "mlp.router.bias",
    "ffn_gate_exps.weight": stored_as(FUSED, change=lambda value, c: gate_rows(value.mT, c)),
    "ffn_up_exps.weight": stored_as(FUSED, change=lambda value, c: up_rows(value.mT, c)),
    "ffn_down_exps.weight": stored_as(DOWN, change=lambda value, c: value.mT),
    "ffn_gate_exps.bias": stored_as(f"{FUSED}_bias", change=gate_rows),
    "ffn_up_exps.bias": stored_as(f"{FUSED}_bias", change=up_rows),
    "ffn_down_exps.bias": f"{DOWN}_bias",
}


def from_gguf(keys: Keys) -> Config:
    if (experts := keys.experts()) is None:
        raise UsageError(
            f"{keys.where}: no number of experts in {keys.arch}.expert_count; every layer of gpt-oss has experts",
            "check that the file is complete, or convert it again",
        )
    return keys.decoder(
        experts=experts,
        windows=keys.windows(keys.integer("attention.sliding_window"), PATTERN),
    )


def from_hf(json: ConfigJson) -> Config:
    """Matrices of experts may be floats, or MXFP4 as released."""
    quantised = json.raw.get("quantization_config")
    if not isinstance(quantised, Mapping) or quantised.get("quant_method") != "mxfp4":
        json.refuse(quantization_config=(None,))
    json.refuse(swiglu_limit=(None, 7.0), attention_bias=(None, True), hidden_act=("silu", None))
    width = json.integer("intermediate_size")
    return json.decoder(
        ("layer_types", "quantization_config"),
        experts=json.experts(normalise=True),
        expert_ff=width,
        windows=json.windows(PATTERN),
    )


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    assert c.experts is not None
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=False, biases=True, sinks=True)
    yield b.norm("x", "h", "post_attention_norm.weight")
    yield from b.mixture(c.experts, c.expert_ff, act="clamped", biases=True)


GPT_OSS = Family(
    name="gpt-oss",
    classes=("GptOssForCausalLM",),
    model_types=("gpt_oss",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS | ATTENTION | NAMES,
)
