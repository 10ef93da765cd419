"""Fields of heads of pairs and of blocks from a config.json, in the dialect that was recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from spec_core.errors import UsageError
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.gemma4 import heads_by_kind
from spec_targets.architectures.heads.block_facts import (
    block_facts,
    gate_facts,
    layer_ids,
    selector_facts,
    sequential_facts,
    transfer_facts,
)
from spec_targets.architectures.heads.dialects import Dialect, Reading, value_at
from spec_targets.architectures.heads.head import Head
from spec_targets.architectures.heads.lattice import lattice_facts
from spec_targets.architectures.heads.names import GEMMA4
from spec_targets.architectures.heads.tensors import HeadTensors
from spec_targets.architectures.values import read_float

NEUTRAL: dict[str, Any] = {"attention_value_scale": 1.0, "markov_head_type": "vanilla"}
NEUTRAL_PAIRS: dict[str, Any] = NEUTRAL | {
    "output_multiplier": 1.0, "final_logit_softcapping": 0.0, "input_embedding_scale": 1.0, "use_swa": False,
    "sample_from_anchor": False, "rope_is_neox_style": True,
}  # fmt: skip
NEUTRAL_TRANSFER = NEUTRAL | {"output_multiplier": 1.0, "final_logit_softcapping": 0.0}
"""Options with their neutral value; other values are not supported."""
GEMMA4_NEUTRAL: dict[str, Any] = {
    "hidden_activation": "gelu_pytorch_tanh", "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
    "enable_moe_block": False, "final_logit_softcapping": 0.0,
}  # fmt: skip
"""Options of Gemma 4's layers, with the value that is supported in a draft head."""


def is_gemma4(raw: Mapping[str, Any]) -> bool:
    """Whether a head has Gemma 4's layers."""
    return GEMMA4 in str(raw.get("architectures"))


def gemma4_sizes(sizes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Sizes of layers of Gemma 4, all with full attention, by the keys of other families."""
    _check_neutral(sizes, name, GEMMA4_NEUTRAL)
    _check_full_attention(sizes, name)
    rope = sizes.get("rope_parameters")
    full = rope.get("full_attention") if isinstance(rope, dict) else None
    json = ConfigJson(sizes, "gemma4", GEMMA4, name)
    (head, kv_heads), _ = heads_by_kind(json, (0,) * json.layers())
    return {**sizes, "head_dim": head, "num_key_value_heads": kv_heads, "rope_parameters": full or rope}


def pair_fields(
    head: Head, raw: Mapping[str, Any], sizes: Mapping[str, Any], tensors: HeadTensors, dialect: Dialect
) -> Head:
    """A head of pairs. Raises UsageError for what is not supported."""
    notes = [
        f"{key} ignored: its training does not read it" for key in dialect.unread if _is_in_use({**sizes, **raw}, key)
    ]
    sizes, raw = ({k: v for k, v in values.items() if k not in dialect.unread} for values in (sizes, raw))
    _check_neutral({**sizes, **raw}, head.name, NEUTRAL_PAIRS)
    _check_full_attention(sizes, head.name)
    if dialect.norm_output_is_last_norm:
        _check_neutral(raw, head.name, {"norm_output": True})
    ids, reading = _ids(raw, dialect, head.name)
    return attrs.evolve(
        head,
        ids=ids,
        reading=reading,
        repairs=(*head.repairs, *notes),
        last=ids is None and (not head.projected or value_at(raw, "eagle_config.use_aux_hidden_state") is False),
        norm_before_residual=_residual(raw, head),
        norm_before_fc=tensors.shape("input_norm.weight") is not None,
        fc_norm=tensors.shape("input_norm.0.weight") is not None,
        norm_output=not dialect.norm_output_is_last_norm and flag(raw, "norm_output", head.name),
    )


def _is_in_use(values: Mapping[str, Any], key: str) -> bool:
    """Whether a key has a value that would change a head."""
    if key == "layer_types":
        return "sliding_attention" in _layer_types(values)
    return values.get(key) not in (None, False, NEUTRAL_PAIRS.get(key))


def _check_full_attention(sizes: Mapping[str, Any], name: str) -> None:
    """Raise UsageError for a head with sliding windows, where it may have none."""
    full = {"use_sliding_window": (None, False), "layer_types": (None, ["full_attention"] * len(_layer_types(sizes)))}
    for key, accepted in full.items():
        if sizes.get(key) not in accepted:
            raise UsageError(
                f"{name}: {key} = {repr(sizes[key])[:60]} is not supported in such a head",
                hint="use a head whose layers all have full attention",
            )


def _layer_types(sizes: Mapping[str, Any]) -> list[Any]:
    kinds = sizes.get("layer_types")
    return kinds if isinstance(kinds, list) else []


def _ids(raw: Mapping[str, Any], dialect: Dialect, name: str) -> tuple[tuple[int, ...] | None, Reading]:
    """Ids of layers that a head reads, by the first key that is there, and what they mean."""
    holders = [value for key in dialect.nested if isinstance(value := raw.get(key), dict)]
    for key, reading in dialect.ids:
        for holder in (*holders, raw):
            if (listed := value_at(holder, key)) is not None:
                return layer_ids(listed, key, name), reading
    return None, dialect.ids[0][1]


def _residual(raw: Mapping[str, Any], head: Head) -> bool:
    """``norm_before_residual`` of a head; required in speculators files: their loaders disagree on the default."""
    if head.producer == "speculators" and "norm_before_residual" not in raw:
        raise UsageError(
            f"{head.name}: config.json has no norm_before_residual, which a speculators file needs",
            hint="add it, as the head was trained: true or false",
        )
    return flag(raw, "norm_before_residual", head.name)


def flag(raw: Mapping[str, Any], key: str, name: str) -> bool:
    """A value of true or false, false if it is not there. Raises UsageError for another."""
    value = raw.get(key)
    if value not in (None, True, False):
        raise UsageError(f"{name}: config.json has {key} = {str(value)[:40]!r}", hint="true or false is needed")
    return bool(value)


def block_fields(
    head: Head, raw: Mapping[str, Any], sizes: Mapping[str, Any], tensors: HeadTensors, dialect: Dialect
) -> Head:
    """A head of blocks. Raises UsageError for what is not supported."""
    options = {**raw, **raw["dflash_config"]} if isinstance(raw.get("dflash_config"), dict) else dict(raw)
    gemma4 = is_gemma4(raw)
    _check_neutral({**sizes, **options}, head.name, NEUTRAL_TRANSFER if head.kind == "dspine" else NEUTRAL)
    if options.get("rope_is_neox_style") is not None and not flag(options, "rope_is_neox_style", head.name):
        tensors.pairs = {"attn_q.": head.heads, "attn_k.": head.kv_heads, "attn_q_norm.": 1, "attn_k_norm.": 1}
    ids, reading = _ids(raw, dialect, head.name)
    windows, note = _windows(sizes, options, head, dialect)
    block, mask = options.get("block_size"), options.get("mask_token_id")
    facts = block_facts(block, mask, windows, (), (head.context, head.vocab), head.name)
    return attrs.evolve(
        head,
        ids=ids,
        reading=reading,
        certain=True,
        repairs=(*head.repairs, *note),
        fc_norm=tensors.shape("input_norm.0.weight") is not None,
        **gate_facts(tensors, head, {**sizes, **options}, dialect),
        **_gemma4_layers(head, tensors) if gemma4 else _factors({**sizes, **options}, head),
        anchor=_samples_from_anchor(options, head, dialect),
        **{**facts, "causal": _causal(options, windows, head.name, dialect)},
        **sequential_facts(tensors, head.name, options.get("markov_rank")),
        **selector_facts(tensors, head.width, options, head.name),
        **(transfer_facts(tensors, raw.get("dspine_config"), head.name) if head.kind == "dspine" else {}),
        **(lattice_facts(tensors, head, options) if head.kind == "lilicorr" else {}),
    )


def _gemma4_layers(head: Head, tensors: HeadTensors) -> dict[str, Any]:
    """Fields of a head with layers of Gemma 4."""
    return {
        "embed_scale": head.width**0.5,
        "scale": 1.0,
        "act": "gelu",
        "post_norms": True,
        "own_values": tensors.shape("blk.0.attn_v.weight") is not None,
    }


def _factors(options: Mapping[str, Any], head: Head) -> dict[str, Any]:
    """Factors of embeddings and logits, and the cap of logits, of a head that states them."""
    cap = options.get("final_logit_softcapping")
    return {
        "embed_scale": read_float(options, "input_embedding_scale", head.name, 1.0),
        "logit_scale": read_float(options, "output_multiplier", head.name, 1.0),
        "logit_cap": read_float(options, "final_logit_softcapping", head.name) if cap else 0.0,
    }


def _samples_from_anchor(options: Mapping[str, Any], head: Head, dialect: Dialect) -> bool:
    """Whether the last committed token's row predicts: as stated, else by the dialect."""
    if options.get("sample_from_anchor") is not None:
        return flag(options, "sample_from_anchor", head.name)
    if options.get("dspark_bonus_anchor") is not None:
        return not flag(options, "dspark_bonus_anchor", head.name)
    return head.kind == "dspark" and dialect.anchored and "aux_hidden_state_layer_ids" not in options


def _check_neutral(options: Mapping[str, Any], name: str, neutral_values: Mapping[str, Any]) -> None:
    for key, neutral in neutral_values.items():
        if options.get(key) not in (None, neutral):
            raise UsageError(f"{name}: {key} = {repr(options[key])[:40]} is not supported", hint="use another head")


def _windows(
    sizes: Mapping[str, Any], options: Mapping[str, Any], head: Head, dialect: Dialect
) -> tuple[tuple[int, ...], list[str]]:
    """Sliding window of each layer, 0 for full attention; and what was repaired."""
    kinds = sizes.get("layer_types") or ["full_attention"] * head.layers
    known = {"full_attention", "sliding_attention"}
    if not isinstance(kinds, list) or len(kinds) != head.layers or not set(map(str, kinds)) <= known:
        raise UsageError(
            f"{head.name}: config.json has layer_types = {str(kinds)[:60]!r}",
            hint=f"{' or '.join(sorted(known))} for each of {head.layers} layers is needed",
        )
    if flag(options, "use_swa", head.name):
        window = _positive(options, "swa_window_size", head.name)
        note = (
            ["layer_types say full attention, its window is on"]
            if "full_attention" in (sizes.get("layer_types") or ())
            else []
        )
        return (window,) * head.layers, note
    if sizes.get("sliding_windows") is not None:
        return _listed_windows(sizes["sliding_windows"], head), []
    if "sliding_attention" not in kinds:
        return (0,) * head.layers, []
    window = _positive(sizes, "sliding_window", head.name) + dialect.wide
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds), []


def _listed_windows(listed: Any, head: Head) -> tuple[int, ...]:
    """A window for each layer; 0 and null are full attention."""
    good = isinstance(listed, list) and len(listed) == head.layers
    if not good or not all(w is None or (type(w) is int and w >= 0) for w in listed):
        raise UsageError(
            f"{head.name}: config.json has sliding_windows = {str(listed)[:60]!r}",
            hint=f"a number of positions, or null, for each of {head.layers} layers is needed",
        )
    return tuple(w or 0 for w in listed)


def _positive(options: Mapping[str, Any], key: str, name: str) -> int:
    window = options.get(key)
    if type(window) is not int or window < 1:
        raise UsageError(f"{name}: config.json has {key} = {str(window)[:40]!r}", hint="a positive number is needed")
    return window


def _causal(options: Mapping[str, Any], windows: tuple[int, ...], name: str, dialect: Dialect) -> tuple[bool, ...]:
    """Whether layers are causal inside the block; sliding ones are (vLLM, SGLang, SpecForge) by default."""
    if dialect.two_way or flag(options, "sliding_window_non_causal", name):
        return (False,) * len(windows)
    causal = next((flag(options, key, name) for key in ("causal", "is_causal") if options.get(key) is not None), None)
    return tuple(dialect.causal or bool(w) if causal is None else causal for w in windows)
