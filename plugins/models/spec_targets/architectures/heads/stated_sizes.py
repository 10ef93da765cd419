"""Sizes of a head as its config.json states them, with what was copied from the target's config and never trained."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from spec_core.errors import UsageError
from spec_targets.architectures.by_class import config_of
from spec_targets.architectures.config import Config
from spec_targets.architectures.heads.tensors import HeadTensors
from spec_targets.architectures.values import read_float

SLIDING = ("use_sliding_window", "sliding_window", "layer_types", "max_window_layers")
"""Keys of sliding attention, which the config reader for models does not support."""
ACTIVATIONS: dict[str, Literal["silu", "gelu"]] = {"silu": "silu", "gelu_pytorch_tanh": "gelu"}
"""Activations of feed-forward layers, by the names in files."""
VOCAB_MAX = (1 << 24) - 1
"""In place of a vocabulary that no file states."""
ROPES = ("rope_parameters", "rope_scaling")
MROPE = ("mrope_section", "mrope_interleaved")
CORRECT = "correct config.json, or use another head"


@attrs.define(eq=False)
class StatedSizes:
    """Sizes while they are read. values: of config.json. notes: what was ignored or corrected, in words.

    partial: share of a head that rotates, as stated; heads are trained with all of it. act: of feed-forward layers.
    """

    where: str
    values: dict[str, Any]
    notes: list[str] = attrs.field(factory=list)
    partial: float = 1.0
    act: Literal["silu", "gelu"] = "silu"

    def config(self, arch: str, vocab: int | None) -> Config:
        """Checked sizes. vocab: that of tensors, where none is stated. Raises UsageError."""
        plain = {key: value for key, value in self.values.items() if key not in SLIDING}
        known = plain.get("vocab_size") is not None
        plain |= {} if known else {"vocab_size": vocab or VOCAB_MAX}
        config = config_of({**plain, "architectures": [arch]}, self.where)
        try:
            config.check(self.where)
        except UsageError as error:
            raise UsageError(error.reason, hint=CORRECT) from error
        return config if known or vocab else attrs.evolve(config, vocab=0)


def stated_sizes(values: Mapping[str, Any], tensors: HeadTensors, gemma4: bool = False) -> StatedSizes:
    """Sizes of a head. gemma4: it has Gemma 4's rotary parameters, and rotates a share. Raises UsageError."""
    sizes = StatedSizes(tensors.where, dict(values))
    _count_layers(sizes, tensors)
    _take_activation(sizes)
    if not gemma4:
        _drop_partial(sizes)
        _drop_sections(sizes)
    return sizes


def _count_layers(sizes: StatedSizes, tensors: HeadTensors) -> None:
    """Take the number of layers that the file has."""
    numbers = {int(match[1]) for name in tensors.names() if (match := re.match(r"blk\.([0-9]{1,9})\.", name))}
    stated = sizes.values.get("num_hidden_layers")
    if numbers and stated != max(numbers) + 1 and (stated is None or type(stated) is int):
        sizes.values["num_hidden_layers"] = max(numbers) + 1
        if stated is not None:
            sizes.notes.append(f"{stated} layers stated, {max(numbers) + 1} in the file")
        kinds = sizes.values.get("layer_types")
        if isinstance(kinds, list) and len(kinds) > max(numbers) + 1:
            sizes.values["layer_types"] = kinds[: max(numbers) + 1]


def _take_activation(sizes: StatedSizes) -> None:
    """Take the activation out of the values, which a model's family would hold against its own."""
    stated = sizes.values.pop("hidden_act", None)
    if stated not in (None, *ACTIVATIONS):
        raise UsageError(
            f"{sizes.where}: hidden_act = {repr(stated)[:40]} is not supported in such a head",
            hint=f"use a head with {' or '.join(ACTIVATIONS)}",
        )
    sizes.act = ACTIVATIONS[stated or "silu"]


def _drop_partial(sizes: StatedSizes) -> None:
    """Ignore a share of a head that rotates: the layers of Llama and Qwen3 that heads are made of rotate it whole."""
    holders = [sizes.values, *(sizes.values.get(key) for key in ROPES)]
    for holder in holders:
        if isinstance(holder, dict) and holder.get("partial_rotary_factor") is not None:
            sizes.partial = read_float(holder, "partial_rotary_factor", sizes.where)
    if sizes.partial > 1:
        raise UsageError(
            f"{sizes.where}: config.json has partial_rotary_factor = {sizes.partial}", hint="a share up to 1 is needed"
        )
    _remove(sizes, ("partial_rotary_factor",))
    if sizes.partial != 1:
        sizes.notes.append(f"partial_rotary_factor {sizes.partial:g} ignored: its training rotates the full width")


def _drop_sections(sizes: StatedSizes) -> None:
    """Ignore sections of positions of pictures: the positions of a text are the same on all axes."""
    kinds = {str(value.get("rope_type", value.get("type"))) for value in _ropes(sizes)}
    stated = any(holder.get(key) is not None for holder in (sizes.values, *_ropes(sizes)) for key in MROPE)
    if "mrope" in kinds or stated:
        sizes.notes.append("mrope sections ignored: a text has one position on all axes")
    if "mrope" in kinds:
        for key in ROPES:
            rope = sizes.values.get(key)
            if isinstance(rope, dict):
                sizes.values[key] = {**rope, "rope_type": "default", "type": "default"}
    _remove(sizes, MROPE)


def _ropes(sizes: StatedSizes) -> list[dict[str, Any]]:
    return [value for key in ROPES if isinstance(value := sizes.values.get(key), dict)]


def _remove(sizes: StatedSizes, keys: tuple[str, ...]) -> None:
    sizes.values = {key: value for key, value in sizes.values.items() if key not in keys}
    for key in ROPES:
        rope = sizes.values.get(key)
        if isinstance(rope, dict):
            sizes.values[key] = {name: value for name, value in rope.items() if name not in keys}
