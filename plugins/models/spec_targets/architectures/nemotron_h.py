"""Nemotron-H, Nemotron Nano 2 and Nemotron 3: each block is one of Mamba-2, attention without positions, a feed-forward
layer, or experts. The feed-forward layers and experts square a relu, and have no gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op
from spec_kernels.model.scan import scan_layer

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.mamba2 import (
    block_numbers,
    one_number,
    rotates_heads,
    scan_in_json,
    scan_in_keys,
    scan_names,
)
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.hf_weights import AFTER
from spec_targets.formats.stored_names import Name, stored_as

KEYS = {
    "groups": "n_groups",
    "heads": "mamba_num_heads",
    "state": "ssm_state_size",
    "head": "mamba_head_dim",
    "kernel": "conv_kernel",
}
MAMBA, FULL, DENSE, EXPERTS = "M", "*", "-", "E"
KINDS = dict(mamba=MAMBA, linear_attention=MAMBA, attention=FULL, full_attention=FULL, mlp=DENSE, moe=EXPERTS)
"""Letters of blocks by their names in newer configs."""
SIGMOID, HEAD = 2, 128
"""``expert_gating_func`` of sigmoid scores, and the width of a head that configs leave out."""
IN_FILES, IN_DIRECTORIES = ("layer", "rms"), ("rms", "layer")
"""Readings of the last norm after the trunk: llama.cpp, which writes GGUF files, has a LayerNorm, vLLM an RMSNorm."""


def _feed_forward(stem: str) -> dict[str, Name]:
    """Names of the tensors of experts. stem: of the layer."""
    return {
        "ffn_gate_inp.weight": f"{stem}.gate.weight",
        "exp_probs_b.bias": f"{stem}.gate.e_score_correction_bias",
        "ffn_up_exps.weight": stored_as(f"{stem}.experts.up_proj", f"{stem}.experts.{{}}.up_proj.weight"),
        "ffn_down_exps.weight": stored_as(f"{stem}.experts.down_proj", f"{stem}.experts.{{}}.down_proj.weight"),
        "ffn_up_shexp.weight": f"{stem}.shared_experts.up_proj.weight",
        "ffn_down_shexp.weight": f"{stem}.shared_experts.down_proj.weight",
        "ffn_latent_down.weight": f"{stem}.fc1_latent_proj.weight",
        "ffn_latent_up.weight": f"{stem}.fc2_latent_proj.weight",
    }


def _attention(stem: str) -> dict[str, Name]:
    parts = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o"}
    return {f"{name}.weight": f"{stem}.{own}_proj.weight" for name, own in parts.items()}


FIRST, SECOND = "/mtp.layers.0", "/mtp.layers.1"
PREDICTING: dict[str, Name] = (
    _attention(f"{FIRST}.mixer")
    | _feed_forward(f"{SECOND}.mixer")
    | {f"nextn.{x}.weight": f"{FIRST}.{x}.weight" for x in ("enorm", "hnorm", "eh_proj")}
    | {
        "attn_norm.weight": f"{FIRST}.norm.weight",
        "post_attention_norm.weight": f"{SECOND}.norm.weight",
        "nextn.shared_head_norm.weight": f"{SECOND}.final_layernorm.weight",
    }
)
"""Tensors of the block after the trunk, which is two layers in checkpoints."""
NAMES: dict[str, Name] = (
    {
        "token_embd.weight": "embeddings.weight",
        "output_norm.weight": "norm_f.weight",
        "output.weight": "/lm_head.weight",
        "attn_norm.weight": "norm.weight",
        "ffn_up.weight": "mixer.up_proj.weight",
        "ffn_down.weight": "mixer.down_proj.weight",
    }
    | scan_names("mixer")
    | _attention("mixer")
    | _feed_forward("mixer")
    | {AFTER + name: where for name, where in PREDICTING.items()}
)


def from_gguf(keys: Keys) -> Config:
    """A block is recurrent if it has neither key heads nor a feed-forward width, and attends if it has the former."""
    layers, function = keys.layers(), keys.integer("expert_gating_func", SIGMOID)
    if function != SIGMOID:
        raise UsageError(
            f"{keys.where}: {keys.arch}.expert_gating_func is {function}, {SIGMOID} was needed", hint=AGAIN
        )
    every = layers + keys.integer("nextn_predict_layers", 0)
    kv_heads, ffs = (keys.integers(key, every)[:layers] for key in ("attention.head_count_kv", "feed_forward_length"))
    letters = [DENSE if ff else FULL if heads else MAMBA for ff, heads in zip(ffs, kv_heads, strict=True)]
    experts = keys.experts(sigmoid=True)
    return keys.decoder(
        kv_heads=one_number(keys, "attention.head_count_kv", kv_heads) if FULL in letters else 1,
        scan=scan_in_keys(keys) if MAMBA in letters else None,
        unrotated=not rotates_heads(keys),
        experts=experts,
        shared_ff=keys.shared_ff() if experts else 0,
        expert_latent=keys.integer("moe_latent_size", 0) if experts else 0,
        nextn_norms=IN_FILES,
        **_kinds(letters, ffs),
    )


def _kinds(letters: Sequence[str], ffs: Sequence[int]) -> dict[str, Any]:
    """Fields of a Config that follow from the kinds of blocks and the widths of those with a feed-forward layer."""
    widest = max(ffs) or 1
    return {
        "recurrent": block_numbers(letters, MAMBA),
        "attending": block_numbers(letters, FULL),
        "ff": widest,
        "ffs": tuple(ff or widest for ff in ffs),
    }


def from_hf(json: ConfigJson) -> Config:
    json.refuse(attention_bias=(None, False), mlp_hidden_act=("relu2",), sliding_window=(None,))
    letters = _letters(json, "hybrid_override_pattern", "layers_block_type")
    json = ConfigJson({**json.raw, "num_hidden_layers": len(letters)}, json.arch, json.kind, json.where)
    nextn = json.integer("num_nextn_predict_layers", 0)
    pattern = "".join(_letters(json, "mtp_hybrid_override_pattern", "mtp_layers_block_type", "*E")) if nextn else "*E"
    if pattern != "*E":
        raise UsageError(
            f"{json.where}: config.json has mtp_hybrid_override_pattern = {pattern[:60]!r}",
            hint="'*E', attention and experts, is supported",
        )
    has_experts = EXPERTS in letters or nextn > 0
    width = json.integer("intermediate_size", 0) if DENSE in letters else 0
    return json.decoder(
        ("layer_types",),
        eps=json.number("layer_norm_epsilon", json.number("norm_eps", 1e-5)),
        head=json.integer("head_dim", json.integer("attention_head_dim", HEAD)),
        scan=scan_in_json(json, 0, KEYS) if MAMBA in letters else None,
        unrotated=True,
        nextn_norms=IN_DIRECTORIES,
        experts=json.experts(sigmoid=True, normalise=True) if has_experts else None,
        expert_ff=json.integer("moe_intermediate_size") if has_experts else 0,
        shared_ff=json.integer("moe_shared_expert_intermediate_size", 0) if has_experts else 0,
        expert_latent=json.integer("moe_latent_size", 0) if has_experts else 0,
        **_kinds(letters, [width if letter == DENSE else 0 for letter in letters]),
    )


def _letters(json: ConfigJson, pattern: str, types: str, usual: str = "") -> list[str]:
    """The kind of every block, from a word of letters or from a list of names."""
    listed = json.raw.get(types) or json.raw.get(pattern) or usual
    letters = [KINDS.get(str(name), str(name)) for name in listed] if isinstance(listed, list | str) else []
    if not letters or not set(letters) <= set(KINDS.values()):
        raise UsageError(
            f"{json.where}: config.json has {pattern} = {str(listed)[:60]!r}",
            hint=f"letters of {', '.join(sorted(set(KINDS.values())))} are needed, or a list {types}",
        )
    return letters


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    after = i >= c.layers
    if i in c.recurrent:
        assert c.scan is not None
        yield from scan_layer(b, c.scan)
    if after or c.attends(i):
        yield from b.attention(norms=False, biases=False)
    if after:
        yield b.norm("x", "h", "post_attention_norm.weight")
    elif i in c.recurrent or c.attends(i):
        return
    if c.experts is None or b.has("ffn_up.weight"):
        yield from b.mlp(c.ff_of(i), act="relu", gated=False)
    else:
        yield from b.mixture(c.experts, c.expert_ff, c.shared_ff, act="relu", gated=False, latent=c.expert_latent)


NEMOTRON_H = Family(
    name="nemotron_h",
    classes=("NemotronHForCausalLM",),
    model_types=("nemotron_h",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=NAMES,
)
NEMOTRON_H_MOE = attrs.evolve(NEMOTRON_H, name="nemotron_h_moe", classes=(), model_types=())
