"""Granite 4 H: most blocks have Mamba-2, the others attention without positions; experts and a shared one, or dense."""

from __future__ import annotations

from collections.abc import Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Add, Op, Scale
from spec_kernels.model.scan import scan_layer
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.mamba2 import (
    UNLIMITED,
    block_numbers,
    one_number,
    rotates_heads,
    scan_in_json,
    scan_in_keys,
    scan_names,
)
from spec_targets.architectures.names import ATTENTION, ENDS
from spec_targets.formats.stored_names import Name, stored_as

MAMBA, FULL = ("mamba", "linear_attention"), ("attention", "full_attention")
"""Kinds of blocks in ``layer_types``: of published configs, and of transformers 5."""


def gate_of(value: Tensor, c: Config) -> Tensor:
    """The rows of the gate in a matrix of gate and up."""
    return value.chunk(2)[0]


def up_of(value: Tensor, c: Config) -> Tensor:
    return value.chunk(2)[1]


PARTS = {"gate": gate_of, "up": up_of}
NAMES: dict[str, Name] = (
    ENDS
    | ATTENTION
    | scan_names("mamba")
    | {
        f"ffn_{name}{suffix}.weight": stored_as("shared_mlp.input_linear.weight", change=change)
        for name, change in PARTS.items()
        for suffix in ("", "_shexp")
    }
    | {f"ffn_down{suffix}.weight": "shared_mlp.output_linear.weight" for suffix in ("", "_shexp")}
    | {
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "ffn_gate_inp.weight": "block_sparse_moe.router.layer.weight",
        "ffn_gate_up_exps.weight": "block_sparse_moe.input_linear.weight",
        "ffn_down_exps.weight": "block_sparse_moe.output_linear.weight",
    }
)


def from_gguf(keys: Keys) -> Config:
    """A block is recurrent if it has no key heads."""
    kv_heads = keys.integers("attention.head_count_kv", keys.layers())
    recurrent = block_numbers(kv_heads, 0)
    attending = len(recurrent) < len(kv_heads)
    experts = keys.experts()
    return keys.decoder(
        kv_heads=one_number(keys, "attention.head_count_kv", kv_heads) if attending else 1,
        scan=scan_in_keys(keys) if recurrent else None,
        recurrent=recurrent,
        unrotated=not rotates_heads(keys),
        experts=experts,
        shared_ff=keys.integer("expert_shared_feed_forward_length", 0) if experts else 0,
        scale=keys.number("attention.scale", 0.0),
        embed_scale=keys.number("embedding_scale", 1.0),
        residual_scale=keys.number("residual_scale", 1.0),
        logit_scale=_inverse(keys.number("logit_scale", 1.0), f"{keys.where}: {keys.arch}.logit_scale"),
    )


def _inverse(divisor: float, what: str) -> float:
    """The factor of logits that are divided."""
    if not divisor > 0:
        raise UsageError(f"{what} is {divisor}, a positive number was needed", hint="the file is damaged; get it again")
    return 1 / divisor


def from_hf(json: ConfigJson) -> Config:
    positions = json.raw.get("position_embedding_type")
    json.refuse(
        attention_bias=(None, False),
        normalization_function=(None, "rmsnorm"),
        position_embedding_type=(None, "nope", "rope"),
        time_step_limit=UNLIMITED,
    )
    kinds = json.kinds(json.layers(), {*MAMBA, *FULL}) or ["mamba"] * json.layers()
    recurrent = block_numbers(kinds, *MAMBA)
    inner = json.integer("mamba_expand", 2) * json.integer("hidden_size")
    experts = json.experts(normalise=True) if json.integer("num_local_experts", 0) else None
    shared = json.integer("shared_intermediate_size")
    return json.decoder(
        ("layer_types",),
        scan=scan_in_json(json, inner) if recurrent else None,
        recurrent=recurrent,
        unrotated=positions != "rope",
        experts=experts,
        expert_ff=json.integer("intermediate_size", 0) if experts else 0,
        ff=shared,
        shared_ff=shared if experts else 0,
        scale=json.number("attention_multiplier", 1.0),
        embed_scale=json.number("embedding_multiplier", 1.0),
        residual_scale=json.number("residual_multiplier", 1.0),
        logit_scale=1 / json.number("logits_scaling", 1.0),
    )


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    if i in c.recurrent:
        assert c.scan is not None
        yield from scan_layer(b, c.scan, residual=False)
    else:
        yield from b.attention(norms=False, biases=False, residual=False)
    yield from _add_branch(c)
    yield b.norm("x", "h", "ffn_norm.weight")
    if c.experts is None:
        yield from b.mlp(c.ff, residual=False)
    else:
        yield from b.mixture(c.experts, c.expert_ff, c.shared_ff, residual=False)
    yield from _add_branch(c)


def _add_branch(c: Config) -> Iterator[Op]:
    if c.residual_scale != 1.0:
        yield Scale("h", c.residual_scale)
    yield Add("x", "h", "x")


GRANITE_HYBRID = Family(
    name="granitehybrid",
    classes=("GraniteMoeHybridForCausalLM",),
    model_types=("granitemoehybrid",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=NAMES,
    interleaved=True,
)
