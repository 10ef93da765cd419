"""The architecture of a Hugging Face directory, and its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from spec_kernels.model.sizes import ADDED_MAX
from torch import Tensor

from spec_core.errors import UsageError, nearest_names
from spec_targets.architectures import BY_CLASS, BY_MODEL_TYPE, Family, family_of, find_family, list_names, positions
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.formats.hf_weights import HfWeights


def text_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config, which is nested in a model with vision."""
    nested = raw.get("text_config")
    return nested if isinstance(nested, dict) else raw


def config_of(raw: Mapping[str, Any], name: str) -> Config:
    """The sizes of a directory's model. Raises UsageError for missing, wrongly typed or unknown values."""
    family, kind = _by_class(raw, name) if raw.get("architectures") else _by_type(raw, name)
    config = family.hf(ConfigJson(text_of(raw), family.name, kind, name))
    return attrs.evolve(config, added=_deepstack_layers(raw, name, config.layers)) if config.axes else config


def _deepstack_layers(raw: Mapping[str, Any], name: str, layers: int) -> int:
    """Number of layers after which rows of pictures are added. Raises UsageError for an impossible one."""
    vision = raw.get("vision_config")
    indexes = vision.get("deepstack_visual_indexes", []) if isinstance(vision, dict) else []
    if not isinstance(indexes, list) or len(indexes) > min(layers, ADDED_MAX):
        raise UsageError(
            f"{name}: config.json has deepstack_visual_indexes = {str(indexes)[:60]!r}",
            hint=f"a list of at most {min(layers, ADDED_MAX)} layers is needed",
        )
    return len(indexes)


def weights_of(directory: Path, config: Config) -> HfWeights:
    """The tensors of a directory's model, by the names that its operations read."""
    return HfWeights(directory, config, family_of(config.arch).names)


def divisors_of(raw: Mapping[str, Any], config: Config) -> Tensor | None:
    """Frequency divisors of llama3 scaling, or None."""
    return positions.divisors_of(text_of(raw), config)


WITH_PICTURES = (
    "Idefics3ForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
)
"""Classes of models whose text part is one of the families, by its ``model_type``."""
WITHOUT_PICTURES = ("Mistral3ForConditionalGeneration",)
"""The same, where text alone is read."""
MUTUAL = ("Gemma3ForConditionalGeneration",)
"""Classes of models with pictures whose rows attend to each other in both directions."""
GRID = "Qwen3VLForConditionalGeneration"
"""Class of a model with pictures whose rows have positions on a grid."""


def reads_pictures(raw: Mapping[str, Any]) -> bool:
    """Whether pictures of a prompt are read by a model with this config."""
    classes = raw.get("architectures")
    named = isinstance(classes, list) and len(classes) > 0 and classes[0] in (*WITH_PICTURES, *MUTUAL, GRID)
    return named and isinstance(raw.get("vision_config"), dict)


def _by_class(raw: Mapping[str, Any], name: str) -> tuple[Family, str]:
    architectures = raw.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(first, str):
        raise UsageError(
            f"{name}: config.json has architectures = {repr(architectures)[:60]}",
            hint='a list of one name is needed, such as ["Qwen3ForCausalLM"]',
        )
    if first in (*WITH_PICTURES, *WITHOUT_PICTURES):
        return _by_type(text_of(raw), name)
    family = find_family(BY_CLASS, first)
    if family is None:
        hint = f"supported: {nearest_names(first, list_names(BY_CLASS))}"
        raise UsageError(f"{name}: architecture {first[:60]!r} is not supported", hint=hint)
    return family, first


def _by_type(raw: Mapping[str, Any], name: str) -> tuple[Family, str]:
    kind = raw.get("model_type")
    if kind is None:
        raise UsageError(
            f"{name}: config.json has neither architectures nor model_type",
            hint=f"add the one it was trained as: {', '.join(list_names(BY_MODEL_TYPE))}",
        )
    family = find_family(BY_MODEL_TYPE, kind) if isinstance(kind, str) else None
    if family is None:
        hint = f"supported: {nearest_names(str(kind), list_names(BY_MODEL_TYPE))}"
        raise UsageError(f"{name}: model_type {str(kind)[:60]!r} is not supported", hint=hint)
    return family, str(kind)
