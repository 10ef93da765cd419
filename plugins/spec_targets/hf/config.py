"""Reads config.json as a Config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_kernels.model.shapes import DeltaShape, Experts
from spec_kernels.ops.rope import llama3_factors
from torch import Tensor

from spec_core.errors import UsageError, nearest
from spec_targets.runtime.config import ARCHS, MAX_LAYERS, Arch, Config
from spec_targets.runtime.rope import Scaling

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Glm4MoeForCausalLM": "glm4moe",
    "Qwen3NextForCausalLM": "qwen3next",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5ForConditionalGeneration": "qwen35",
    "Qwen3_5MoeForCausalLM": "qwen35moe",
    "Qwen3_5MoeForConditionalGeneration": "qwen35moe",
}
MODEL_TYPES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}
"""Architectures by ``model_type``, for configs without ``architectures``."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Keys of the number of experts; transformers 5 writes the second."""


def text_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config, which is nested in a model with vision."""
    nested = raw.get("text_config")
    return {**nested, "architectures": raw.get("architectures")} if isinstance(nested, dict) else raw


def config_of(raw: Mapping[str, Any], name: str) -> Config:
    """The Config of a directory. Raises UsageError for missing, wrongly typed or unknown values."""
    raw = _named(raw, name)
    arch = _architecture(raw, name)
    raw = text_of(raw)
    facts = ARCHS[arch]
    width, heads = _int(raw, "hidden_size", name), _int(raw, "num_attention_heads", name)
    head = _int(raw, "head_dim", name, width // max(1, heads))
    _check_unsupported(raw, facts, name)
    _check_rope(raw, name)
    layers = _layers(raw, name)
    return Config(
        arch=arch,
        name=name,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=_int(raw, "num_key_value_heads", name, heads),
        head=head,
        ff=_int(raw, "intermediate_size", name, 0 if facts.moe else None),
        vocab=_int(raw, "vocab_size", name),
        context=_int(raw, "max_position_embeddings", name),
        eps=_float(raw, "rms_norm_eps", name, 1e-6),
        rope_base=_float(_rope(raw), "rope_theta", name, _float(raw, "rope_theta", name, 10000.0)),
        rotary_dim=int(head * _float(_rope(raw), "partial_rotary_factor", name, _partial(raw, arch, name))),
        scaling=_scaling(raw, name),
        experts=_experts(raw, facts, name) if facts.moe else None,
        expert_ff=_int(raw, "moe_intermediate_size", name) if facts.moe else 0,
        shared_ff=_shared_ff(raw, name) if facts.shared else 0,
        dense=_int(raw, "first_k_dense_replace", name, 0),
        delta=_delta(raw, name) if facts.recurrent else None,
        recurrent=_recurrent(raw, layers, name) if facts.recurrent else frozenset(),
        nextn=_int(raw, "num_nextn_predict_layers", name, _int(raw, "mtp_num_hidden_layers", name, 0)),
    )


def _layers(raw: Mapping[str, Any], name: str) -> int:
    layers = _int(raw, "num_hidden_layers", name)
    if layers > MAX_LAYERS:
        raise UsageError(
            f"{name}: config.json has num_hidden_layers = {layers}", hint=f"at most {MAX_LAYERS} are possible"
        )
    return layers


def _partial(raw: Mapping[str, Any], arch: str, name: str) -> float:
    """Share of a head that rotates; published configs of some families omit the family's default."""
    default = {"glm4moe": 0.5, "qwen3next": 0.25, "qwen35": 0.25, "qwen35moe": 0.25}.get(arch, 1.0)
    return _float(raw, "partial_rotary_factor", name, default)


def _experts(raw: Mapping[str, Any], facts: Arch, name: str) -> Experts:
    count = next((key for key in EXPERTS if key in raw), EXPERTS[0])
    return Experts(
        count=_int(raw, count, name),
        used=_int(raw, "num_experts_per_tok", name),
        normalise=bool(raw.get("norm_topk_prob", facts.shared)),
        scale=_float(raw, "routed_scaling_factor", name, 1.0),
        sigmoid=facts.sigmoid,
        groups=_int(raw, "n_group", name, 1),
        groups_used=_int(raw, "topk_group", name, 1),
    )


def _shared_ff(raw: Mapping[str, Any], name: str) -> int:
    given = _int(raw, "shared_expert_intermediate_size", name, 0)
    return given or _int(raw, "n_shared_experts", name, 0) * _int(raw, "moe_intermediate_size", name)


def _delta(raw: Mapping[str, Any], name: str) -> DeltaShape:
    return DeltaShape(
        key_heads=_int(raw, "linear_num_key_heads", name),
        value_heads=_int(raw, "linear_num_value_heads", name),
        key_dim=_int(raw, "linear_key_head_dim", name),
        value_dim=_int(raw, "linear_value_head_dim", name),
        kernel=_int(raw, "linear_conv_kernel_dim", name),
    )


def _recurrent(raw: Mapping[str, Any], layers: int, name: str) -> frozenset[int]:
    kinds = raw.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise UsageError(
                f"{name}: config.json has layer_types = {str(kinds)[:60]!r}",
                hint=f"a list of {layers} types, one for each layer, is needed",
            )
        unknown = set(map(str, kinds)) - {"linear_attention", "full_attention"}
        if unknown:
            raise UsageError(f"{name}: layers of type {min(unknown)[:60]!r}", hint="such models are not supported")
        return frozenset(i for i, kind in enumerate(kinds) if kind == "linear_attention")
    interval = _int(raw, "full_attention_interval", name, 4)
    return frozenset(i for i in range(layers) if (i + 1) % interval)


def _named(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The config with ``architectures``, derived from ``model_type`` if missing. Raises UsageError."""
    if raw.get("architectures"):
        return raw
    kind = raw.get("model_type")
    if kind is None:
        raise UsageError(
            f"{name}: config.json has neither architectures nor model_type",
            hint=f"add the one it was trained as: {', '.join(MODEL_TYPES)}",
        )
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise UsageError(
            f"{name}: model_type {str(kind)[:60]!r} is not supported",
            hint=f"supported: {nearest(str(kind), MODEL_TYPES)}",
        )
    return {**raw, "architectures": [MODEL_TYPES[kind]]}


def _architecture(raw: Mapping[str, Any], name: str) -> str:
    given = raw.get("architectures")
    first = given[0] if isinstance(given, list) and given else None
    if not isinstance(first, str):
        raise UsageError(
            f"{name}: config.json has architectures = {repr(given)[:60]}",
            hint='a list of one name is needed, such as ["Qwen3ForCausalLM"]',
        )
    if first not in ARCHITECTURES:
        raise UsageError(
            f"{name}: architecture {first[:60]!r} is not supported",
            hint=f"supported: {nearest(first, ARCHITECTURES)}",
        )
    return ARCHITECTURES[first]


def _check_unsupported(raw: Mapping[str, Any], facts: Arch, name: str) -> None:
    """Refuse options that would change the text if they were ignored."""
    wrong = {
        "use_sliding_window": bool(raw.get("use_sliding_window")),
        "hidden_act": raw.get("hidden_act", "silu") != "silu",
        "mlp_bias": bool(raw.get("mlp_bias")),
        "attention_bias": facts.gated and bool(raw.get("attention_bias")),
        "mlp_only_layers": bool(raw.get("mlp_only_layers")),
        "decoder_sparse_step": raw.get("decoder_sparse_step", 1) != 1,
        "quantization_config": "quantization_config" in raw,
        "layer_types": not facts.recurrent and _kinds(raw) - {"full_attention"} != set(),
    }
    for key, bad in wrong.items():
        if bad:
            raise UsageError(
                f"{name}: {key} = {repr(raw[key])[:60]} is not supported",
                hint="use a model without it, or a GGUF of it",
            )
    window = raw.get("sliding_window")
    if raw.get("architectures") == ["MistralForCausalLM"] and window:
        raise UsageError(f"{name}: a sliding window of {window} is not supported", hint="use a model without it")


def _kinds(raw: Mapping[str, Any]) -> set[str]:
    """Kinds of attention that the config names for its layers."""
    kinds = raw.get("layer_types") or []
    return set(map(str, kinds)) if isinstance(kinds, list) else {str(kinds)}


def _check_rope(raw: Mapping[str, Any], name: str) -> None:
    """Raise UsageError for rotary parameters that are not one object for all layers."""
    for key in ("rope_parameters", "rope_scaling"):
        value = raw.get(key)
        plain = isinstance(value, dict) and not any(isinstance(inner, dict) for inner in value.values())
        if value is not None and not plain:
            raise UsageError(
                f"{name}: config.json has {key} = {repr(value)[:60]}",
                hint="one object of rotary parameters, for every layer, is needed",
            )


def _rope(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rotary parameters, by the old or the new key."""
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def _kind(raw: Mapping[str, Any]) -> str:
    rope = _rope(raw)
    return str(rope.get("rope_type", rope.get("type", "default")))


def _scaling(raw: Mapping[str, Any], name: str) -> Scaling:
    rope, kind = _rope(raw), _kind(raw)
    if kind in ("default", "llama3"):
        return Scaling()
    if kind not in ("linear", "yarn"):
        raise UsageError(
            f"{name}: rope scaling {kind!r} is not supported", hint="supported: default, linear, llama3, yarn"
        )
    unknown = {"attention_factor", "mscale", "mscale_all_dim"} & {k for k, v in rope.items() if v is not None}
    if unknown or rope.get("truncate") is False:
        raise UsageError(
            f"{name}: yarn with {', '.join(sorted(unknown)) or 'truncate=false'} is not supported",
            hint="use another model",
        )
    return Scaling(
        kind="yarn" if kind == "yarn" else "linear",
        factor=_float(rope, "factor", name),
        original=int(
            _float(rope, "original_max_position_embeddings", name, _float(raw, "max_position_embeddings", name))
        ),
        fast=_float(rope, "beta_fast", name, 32.0),
        slow=_float(rope, "beta_slow", name, 1.0),
    )


def divisors_of(raw: Mapping[str, Any], config: Config) -> Tensor | None:
    """Frequency divisors of llama3 scaling, or None."""
    raw = text_of(raw)
    if _kind(raw) != "llama3":
        return None
    rope = _rope(raw)
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    factor, low, high, original = (_float(rope, n, config.name) for n in names)
    if not low < high:
        raise UsageError(
            f"{config.name}: llama3 rope scaling from {low} to {high} turns", hint="the first must be the smaller one"
        )
    return llama3_factors(config.rotary_dim, config.rope_base, factor, low, high, int(original))


def _int(raw: Mapping[str, Any], key: str, name: str, default: int | None = None) -> int:
    value = raw.get(key)
    value = default if value is None else value
    if default == 0 and value == 0:
        return 0
    if type(value) is not int or not 0 < value < 1 << 31:
        raise UsageError(
            f"{name}: config.json has {key} = {str(value)[:40]!r}", hint="a positive whole number is needed"
        )
    return value


def _float(raw: Mapping[str, Any], key: str, name: str, default: float | None = None) -> float:
    value = raw.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e18:
        raise UsageError(f"{name}: config.json has {key} = {str(value)[:40]!r}", hint="a positive number is needed")
    return float(value)
