"""The rotary parameters of a config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spec_kernels.ops.rope import llama3_factors
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.config import MAX_HEAD, Config
from spec_targets.architectures.rope import Scaling, yarn_attention
from spec_targets.architectures.values import read_float


def check_rope(raw: Mapping[str, Any], where: str) -> None:
    """Raise UsageError for rotary parameters that are not one object for all layers."""
    for key in ("rope_parameters", "rope_scaling"):
        value = raw.get(key)
        plain = isinstance(value, dict) and not any(isinstance(inner, dict) for inner in value.values())
        if value is not None and not plain:
            raise UsageError(
                f"{where}: config.json has {key} = {repr(value)[:60]}",
                hint="one object of rotary parameters, for every layer, is needed",
            )


def rope_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rotary parameters, by the old or the new key."""
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def partial_of(raw: Mapping[str, Any], where: str, default: float) -> float:
    """Share of a head that rotates; published configs of some families omit the family's default.

    Of proportional scaling it is 1: the share there says which pairs stand still.
    """
    if _kind(rope_of(raw)) == "proportional":
        return 1.0
    older = read_float(raw, "partial_rotary_factor", where, default)
    return read_float(rope_of(raw), "partial_rotary_factor", where, older)


def _kind(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type", rope.get("type", "default")))


def scaling_of(raw: Mapping[str, Any], where: str) -> Scaling:
    rope = rope_of(raw)
    kind = _kind(rope)
    if kind in ("default", "llama3"):
        return Scaling()
    if kind == "longrope":
        return _longrope(raw, rope, where)
    if kind == "proportional":
        share = read_float(rope, "partial_rotary_factor", where, 1.0)
        if share > 1:
            raise UsageError(
                f"{where}: config.json has partial_rotary_factor = {share}",
                hint="a share of a head, from 0 to 1, is needed",
            )
        return Scaling("proportional", share)
    if kind not in ("linear", "yarn"):
        raise UsageError(
            f"{where}: rope scaling {kind[:60]!r} is not supported",
            hint="supported: default, linear, llama3, longrope, proportional, yarn",
        )
    length = read_float(raw, "max_position_embeddings", where)
    original = int(read_float(rope, "original_max_position_embeddings", where, length))
    longer = length / original if kind == "yarn" and original > 0 and rope.get("factor") is None else None
    factor = read_float(rope, "factor", where, longer)
    return Scaling(
        kind="yarn" if kind == "yarn" else "linear",
        factor=factor,
        original=original,
        attention=_yarn_attention(rope, factor, where) if kind == "yarn" else 1.0,
        fast=read_float(rope, "beta_fast", where, 32.0),
        slow=read_float(rope, "beta_slow", where, 1.0),
        whole=rope.get("truncate") is not False,
        growth=read_float(rope, "llama_4_scaling_beta", where, 0.0) if rope.get("llama_4_scaling_beta") else 0.0,
    )


def _yarn_attention(rope: Mapping[str, Any], factor: float, where: str) -> float:
    """Factor on yarn's own factor of cos and sin: ``attention_factor`` replaces the latter, and so does ``mscale``
    divided by ``mscale_all_dim``, each with a logarithm of the scaling factor (as in transformers).
    """
    if rope.get("attention_factor") is not None:
        return read_float(rope, "attention_factor", where) / yarn_attention(factor)
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        scale, all_dim = (read_float(rope, name, where) for name in ("mscale", "mscale_all_dim"))
        divisor = yarn_attention(factor, all_dim) * yarn_attention(factor)
        return yarn_attention(factor, scale) / divisor if divisor else 0.0
    return 1.0


def _longrope(raw: Mapping[str, Any], rope: Mapping[str, Any], where: str) -> Scaling:
    """The original length is at the top of published configs, and in the rotary parameters of newer ones."""
    length = read_float(raw, "max_position_embeddings", where)
    older = read_float(raw, "original_max_position_embeddings", where, length)
    original = read_float(rope, "original_max_position_embeddings", where, older)
    longer = length / original
    usual = math.sqrt(1 + math.log(longer) / math.log(original)) if longer > 1 and original > 1 else 1.0
    return Scaling(
        kind="longrope",
        original=int(original),
        attention=read_float(rope, "attention_factor", where, usual),
        long=_factors(rope, "long_factor", where),
        short=_factors(rope, "short_factor", where),
    )


def _factors(rope: Mapping[str, Any], key: str, where: str) -> tuple[float, ...]:
    """Positive numbers; that there is one for each pair is checked with the other sizes."""
    listed = rope.get(key)
    if not isinstance(listed, list) or len(listed) > MAX_HEAD:
        raise UsageError(f"{where}: config.json has {key} = {str(listed)[:40]!r}", hint="a list of numbers is needed")
    return tuple(read_float({key: number}, key, where) for number in listed)


def divisors_of(raw: Mapping[str, Any], config: Config) -> Tensor | None:
    """Frequency divisors of llama3 scaling, or None."""
    rope = rope_of(raw)
    if _kind(rope) != "llama3":
        return None
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    factor, low, high, original = (read_float(rope, name, config.name) for name in names)
    if not low < high:
        raise UsageError(
            f"{config.name}: llama3 rope scaling from {low} to {high} turns", hint="the first must be the smaller one"
        )
    return llama3_factors(config.rotary_dim, config.rope_base, factor, low, high, int(original))
