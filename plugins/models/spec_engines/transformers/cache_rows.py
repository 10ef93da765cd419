"""The memory of a slot: transformers' own cache, cut after every step; several of them as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import attrs
import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from spec_core.errors import UsageError

States = list[tuple[int, str, int, Tensor]]
"""(layer, attribute, index, copy) of every recurrent tensor."""
PARTS = ("conv_states", "recurrent_states")


@attrs.frozen
class Kinds:
    """recurrent: a layer has a state that cannot be cut. plain: every layer keeps all rows, or stores none."""

    recurrent: bool
    plain: bool

    @classmethod
    def of(cls, config: Any) -> Kinds:
        """Kinds of layers in a model's cache. Raises UsageError if one is unknown."""
        layers = DynamicCache(config=config).layers
        for layer in layers:
            known = isinstance(layer, DynamicLayer) or is_recurrent(layer) or stores_nothing(layer)
            if not known and hasattr(layer, "keys"):
                raise UsageError(
                    f"{config.model_type}: layers of its cache are {type(layer).__name__}, which cannot be cut",
                    hint="use another model",
                )
        plain = all(type(layer) is DynamicLayer or stores_nothing(layer) for layer in layers)
        return cls(any(map(is_recurrent, layers)), plain)


def is_recurrent(layer: Any) -> bool:
    return hasattr(layer, "recurrent_states")


def stores_nothing(layer: Any) -> bool:
    """Whether a layer of a fresh cache will never have rows: it reads another layer's, or has no attention."""
    return not is_recurrent(layer) and bool(getattr(layer, "is_initialized", False)) and layer.keys is None


def has_rows(layer: Any) -> TypeGuard[DynamicLayer]:
    return isinstance(layer, DynamicLayer) and layer.is_initialized


@attrs.define(eq=False)
class CopiedRows:
    """Rows of a sequence for further layers. memory: their cache, whose first ``count`` rows are there."""

    memory: Any = None
    count: int = 0

    def cut(self, length: int) -> None:
        """Drop rows from position ``length`` on."""
        self.count = min(self.count, length)


class TransformersRows:
    """Rows of one sequence. Layers with a sliding window keep all rows: a cut may need those before the window."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.cache: Any = self._fresh()
        self.before: States | None = None
        self.copied = CopiedRows()

    def _fresh(self) -> DynamicCache:
        cache = DynamicCache(config=self.config)
        cache.layers = [DynamicLayer() if type(la) is DynamicSlidingWindowLayer else la for la in cache.layers]
        return cache

    def cut(self, length: int) -> None:
        """Drop rows of attention from position ``length`` on."""
        self.copied.cut(length)
        for layer in self.cache.layers:
            if has_rows(layer) and (more := layer.get_seq_length() - length) > 0:
                DynamicLayer.crop(layer, -more)

    def compact(self, end: int, kept: Sequence[int]) -> None:
        """Move the rows ``end`` + i of a kept path to the place after the first ``end`` rows."""
        for layer in self.cache.layers:
            if has_rows(layer):
                rows = torch.tensor([end + i for i in kept], device=layer.keys.device)
                layer.keys, layer.values = (
                    torch.cat([x[..., :end, :], x[..., rows, :]], -2) for x in (layer.keys, layer.values)
                )

    # recurrent state

    def copy_states(self) -> States:
        """Copies of all recurrent tensors; empty before the first forward."""
        return [
            (i, part, j, tensor.clone())
            for i, layer in enumerate(self.cache.layers)
            if is_recurrent(layer)
            for part in PARTS
            for j, tensor in getattr(layer, part).items()
            if tensor is not None
        ]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def put(self, states: States | None) -> None:
        """Restore copies; None is the state before the first token."""
        if states is None:
            self.cache = self._fresh()
            return
        for i, part, j, tensor in states:
            getattr(self.cache.layers[i], part)[j].copy_(tensor)


class Shared(Cache):
    """The caches of several sequences as one batch. Each keeps its own rows; a layer reads them padded with zeros.

    rows: how many new rows of the batch belong to each sequence; the rows after them are padding.
    """

    def __init__(self, caches: Sequence[Any], rows: Sequence[int]) -> None:
        super().__init__(layers=[])
        self.caches, self.rows = caches, rows

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """key_states, value_states: [B, H, n, D] of the new rows; returns all rows'."""
        held = [
            cache.update(key_states[i : i + 1, :, :n], value_states[i : i + 1, :, :n], layer_idx, *args, **kwargs)
            for i, (cache, n) in enumerate(zip(self.caches, self.rows, strict=True))
        ]
        keys, values = zip(*held, strict=True)
        return _stack(keys), _stack(values)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(cache.get_seq_length(layer_idx) for cache in self.caches)


def _stack(held: Sequence[Tensor]) -> Tensor:
    """[B, H, T, D] of [1, H, T or less, D]."""
    length = max(rows.shape[-2] for rows in held)
    lines = held[0].new_zeros(len(held), held[0].shape[1], length, held[0].shape[3])
    for line, rows in zip(lines, held, strict=True):
        line[:, : rows.shape[-2]] = rows[0]
    return lines
