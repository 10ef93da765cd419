"""Tensors of a Hugging Face directory by their GGUF names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from spec_kernels.model.source import bytes_of
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.formats.mxfp4 import Mxfp4, join_scales
from spec_targets.formats.safetensors import StoredTensor, open_directory
from spec_targets.formats.stored_names import Name, Stored
from spec_targets.formats.types import BLOCKS

NAME = re.compile(r"blk\.(\d+)\.(.+)")
MTP = re.compile(r"mtp\.layers\.(\d+)\.")
FLOATS = ("F32", "BF16", "F16", "F64")
PREFIXES = ("model.language_model.", "language_model.model.", "model.text_model.", "backbone.", "encoder.", "model.")
AFTER = "after."
"""Begins the names of tensors of the first block after the trunk, in families where their places differ."""
EXPERT = "{}"


class HfWeights:
    """Rows of q and k keep the order of this format; everything else gets the form of GGUF."""

    interleaved = False

    def __init__(self, directory: Path, config: Any, names: Mapping[str, Name]) -> None:
        """config: sizes, for conversions. names: of the family, see ``architectures.Family``."""
        stored = open_directory(directory)
        self.tensors: dict[str, StoredTensor | Mxfp4] = stored | join_scales(stored, directory.name)
        self.config, self.known = config, names
        self.where = directory.name
        table = names.get("token_embd.weight", "embed_tokens.weight")
        self.prefix = next((p for p in PREFIXES if f"{p}{table}" in self.tensors), "model.")

    def names(self) -> tuple[str, ...]:
        return ()

    def shape(self, name: str) -> tuple[int, ...] | None:
        parts, where = self._parts(name)
        for part in parts:
            self._check_type(part)
        if not parts:
            return None
        return tuple(self._convert(name, where, [torch.empty(part.shape, device="meta") for part in parts]).shape)

    def load(self, name: str) -> Tensor:
        parts, where = self._parts(name)
        return self._convert(name, where, [part.load() for part in parts])

    def type(self, name: str) -> str:
        return self._parts(name)[0][0].type

    def nbytes(self, name: str) -> int:
        elements, size = BLOCKS[self.type(name)]
        return math.prod(self.shape(name) or ()) // elements * size

    def blocks(self, name: str) -> Tensor:
        parts, where = self._parts(name)
        if isinstance(parts[0], Mxfp4):
            return self._convert(name, where, [parts[0].blocks()]).flatten(0, 1)
        return bytes_of(self.load(name))

    def _check_type(self, stored: StoredTensor | Mxfp4) -> None:
        if stored.type not in FLOATS and not isinstance(stored, Mxfp4):
            raise UsageError(
                f"{self.where}: tensor {stored.name!r} is of type {stored.type}, which is not supported",
                hint=f"use a model with weights of {', '.join(FLOATS)}, or a GGUF of it",
            )

    def _convert(self, name: str, stored: Stored, values: list[Tensor]) -> Tensor:
        """GGUF's form of stored values, or of tensors without values. Raises UsageError for a shape that has none."""
        value = torch.stack(values) if EXPERT in stored.names[0] or len(values) > 1 else values[0]
        if stored.change is None:
            return value
        try:
            return stored.change(value, self.config)
        except (RuntimeError, IndexError, ValueError) as error:
            raise UsageError(
                f"{self.where}: tensor {name!r} is stored as {list(value.shape)}, which does not fit config.json",
                hint="its config and its tensors do not belong together; get the model again",
            ) from error

    def _parts(self, name: str) -> tuple[list[StoredTensor | Mxfp4], Stored]:
        """The stored tensors that make up a tensor, none if there is none, and where they were looked for."""
        match = NAME.fullmatch(name)
        key, stem = (match[2], self._stem(int(match[1]))) if match else (name, self.prefix)
        if match and int(match[1]) == self.config.layers and AFTER + key in self.known:
            key = AFTER + key
        where = self.known.get(key, Stored(()))
        where = Stored((where,)) if isinstance(where, str) else where
        for one in where.names:
            if parts := self._stored_parts(one[1:] if one.startswith("/") else stem + one):
                return parts, Stored((one,), where.change)
        return [], where

    def _stored_parts(self, name: str) -> list[StoredTensor | Mxfp4]:
        """One tensor, or all experts', if all exist with the same shape."""
        if EXPERT not in name:
            return [self.tensors[name]] if name in self.tensors else []
        count = self.config.experts.count if self.config.experts else 0
        experts = [self.tensors.get(name.replace(EXPERT, str(expert))) for expert in range(count)]
        alike = [one for one in experts if one is not None and experts[0] is not None and one.shape == experts[0].shape]
        return alike if len(alike) == count else []

    @property
    def nextn(self) -> int:
        """Number of NextN layers, which some configs do not count."""
        if not self._parts(f"blk.{self.config.layers}.nextn.eh_proj.weight")[0]:
            return 0
        layers = {match[1] for name in self.tensors if (match := MTP.match(name))}
        return 1 if any(name.startswith(AFTER) for name in self.known) else max(len(layers), 1)

    def _stem(self, block: int) -> str:
        """The name prefix of a block; in some families it differs for blocks after the trunk."""
        own = f"mtp.layers.{block - self.config.layers}."
        after = block >= self.config.layers and f"{own}input_layernorm.weight" in self.tensors
        return own if after else f"{self.prefix}layers.{block}."
