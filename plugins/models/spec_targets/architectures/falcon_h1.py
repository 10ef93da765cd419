"""Falcon-H1: every block has attention and Mamba-2, which read the same normalised stream and are both added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op
from spec_kernels.model.scan import scan_layer
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.mamba2 import UNLIMITED, scan_in_json, scan_in_keys, scan_names
from spec_targets.architectures.names import ATTENTION, ENDS
from spec_targets.formats.stored_names import Name, stored_as

SECTIONS = 5
"""Parts of ``ssm_in`` with a multiplier of their own: z, x, B, C and the steps."""


def times(name: str) -> Callable[[Tensor, Config], Tensor]:
    """The change of a tensor with one multiplier, as llama.cpp's converter makes it."""

    def multiply(value: Tensor, c: Config) -> Tensor:
        (factor,) = c.multipliers[name]
        return value if factor == 1.0 else value * factor

    return multiply


def multiply_sections(value: Tensor, c: Config) -> Tensor:
    """The rows of ``ssm_in``, each section by its multiplier."""
    s = c.scan
    assert s is not None
    sizes = [s.value_width, s.value_width, s.key_width, s.key_width, s.value_heads]
    factors = c.multipliers["ssm_in"]
    return torch.cat([part * factor for part, factor in zip(value.split(sizes), factors, strict=True)])


MULTIPLIED = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ssm_out": "mamba.out_proj",
    "ffn_gate": "feed_forward.gate_proj",
    "ffn_down": "feed_forward.down_proj",
}
NAMES: dict[str, Name] = (
    ENDS
    | ATTENTION
    | scan_names("mamba")
    | {f"{name}.weight": stored_as(f"{own}.weight", change=times(name)) for name, own in MULTIPLIED.items()}
    | {
        "ssm_in.weight": stored_as("mamba.in_proj.weight", change=multiply_sections),
        "output_norm.weight": "final_layernorm.weight",
        "ffn_norm.weight": "pre_ff_layernorm.weight",
        "ffn_up.weight": "feed_forward.up_proj.weight",
    }
)


def from_gguf(keys: Keys) -> Config:
    """The multipliers are in the weights."""
    every = frozenset(range(keys.layers()))
    return keys.decoder(scan=scan_in_keys(keys), recurrent=every, attending=every)


def from_hf(json: ConfigJson) -> Config:
    json.refuse(
        attention_bias=(None, False),
        mamba_norm_before_gate=(False,) if json.raw.get("mamba_rms_norm") else (None, False, True),
        mamba_use_mlp=(None, True),
        time_step_limit=UNLIMITED,
    )
    every = frozenset(range(json.layers()))
    inner = json.integer("mamba_d_ssm", 0) or json.integer("mamba_expand", 2) * json.integer("hidden_size")
    embedded = json.number("embedding_multiplier", 1.0)
    return json.decoder(
        scan=scan_in_json(json, inner),
        recurrent=every,
        attending=every,
        embed_scale=embedded,
        logit_scale=json.number("lm_head_multiplier", 1.0),
        multipliers=_multipliers(json),
    )


def _multipliers(json: ConfigJson) -> dict[str, tuple[float, ...]]:
    """The factors of every tensor that the config leaves apart."""
    read, add = json.number("attention_in_multiplier", 1.0), json.number("attention_out_multiplier", 1.0)
    gate, down = _numbers(json, "mlp_multipliers", 2)
    into = json.number("ssm_in_multiplier", 1.0)
    return {
        "attn_q": (read,),
        "attn_k": (read * json.number("key_multiplier", 1.0),),
        "attn_v": (read,),
        "attn_output": (add,),
        "ssm_in": tuple(into * factor for factor in _numbers(json, "ssm_multipliers", SECTIONS)),
        "ssm_out": (json.number("ssm_out_multiplier", 1.0),),
        "ffn_gate": (gate,),
        "ffn_down": (down,),
    }


def _numbers(json: ConfigJson, key: str, count: int) -> list[float]:
    """A list of positive numbers; ones if the config has none."""
    listed = json.raw.get(key)
    listed = [1.0] * count if listed is None else listed
    good = isinstance(listed, list) and len(listed) == count
    if not good or not all(type(x) in (int, float) and 0 < x < 1e18 for x in listed):
        raise UsageError(
            f"{json.where}: config.json has {key} = {str(listed)[:60]!r}",
            hint=f"a list of {count} positive numbers is needed",
        )
    return [float(x) for x in listed]


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    assert c.scan is not None
    yield b.norm("x", "h", "attn_norm.weight")
    yield from scan_layer(b, c.scan)
    yield from b.attention(norms=False, biases=False)
    yield b.norm("x", "h", "ffn_norm" if b.has("ffn_norm") else "ffn_norm.weight")
    yield from b.mlp(c.ff)


FALCON_H1 = Family(
    name="falcon-h1",
    classes=("FalconH1ForCausalLM",),
    model_types=("falcon_h1",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=NAMES,
)
