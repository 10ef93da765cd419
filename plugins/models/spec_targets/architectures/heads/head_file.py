"""A head's file as an object like a target, with metadata and weights but without a forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from spec_kernels.model.source import TensorSubset
from torch import Tensor

from spec_core import Compat, Refusal, TargetInfo, hookimpl
from spec_core.errors import UsageError
from spec_core.toolkit import TrainingTexts
from spec_targets.architectures.heads import gguf_head, hf_head
from spec_targets.architectures.heads.head import Head, Problem
from spec_targets.architectures.heads.tensors import TensorSource, tensor_shapes
from spec_targets.architectures.rope import rope_frequencies
from spec_targets.formats.gguf import GgufFile

NO_MODEL = "this is a draft head, not a model"


@attrs.define(eq=False)
class HeadFile:
    """The result of ``load(FILE, weights=False)`` for a draft head.

    head: its description. source: its tensors, and names theirs. training_texts: of the model that it belongs to.
    """

    head: Head
    tensors: TensorSource
    tokenizer: Any = None
    path: Path | None = None
    training_texts: TrainingTexts | None = attrs.field(default=None, init=False)
    info: TargetInfo = attrs.field(init=False)
    source: TensorSubset = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        h = self.head
        self.info = TargetInfo(
            name=h.name,
            vocab=h.vocab,
            width=h.width,
            layers=h.layers,
            context=h.context,
            vocab_id=self.tokenizer.identity if self.tokenizer is not None else "",
            family=h.kind,
            file="" if self.path is None else str(self.path),
        )
        self.source = TensorSubset(self.tensors, tensor_shapes(h))

    @property
    def names(self) -> frozenset[str]:
        """Names of its tensors."""
        return self.source.names

    def rotation(self) -> tuple[Tensor, float]:
        """Radians per position [head / 2] float32 by which q and k are rotated, and the factor of cos and sin."""
        h = self.head
        return rope_frequencies(h.head, h.rope_base, h.scaling, h.divisors)

    def tensor(self, name: str) -> Tensor:
        """A weight in its stored type, float32 if it was quantised. Raises KeyError."""
        if name not in self.names:
            raise KeyError(name)
        return self.tensors.load(name)

    def misfit(self, target: Any, reading: Any = "auto") -> Problem | None:
        """Why it cannot draft for a target, or None: a different width, vocabulary, number of layers, or context."""
        return self.head.misfit(target.info, reading) or self._other_tokens(target)

    def _other_tokens(self, target: Any) -> Problem | None:
        """Compare the file's own tokenizer, if any, with the target's, padding aside."""
        own, other = self.tokenizer, target.tokenizer
        if own is None or other is None or own.identity == other.identity:
            return None
        count = min(own.vocab_size, other.vocab_size)
        differs = next((i for i in range(count) if own.token_bytes(i) != other.token_bytes(i)), None)
        if differs is None:
            return None
        own_token = f"{self.head.name}: token {differs} is {own.token_bytes(differs)!r} for this head"
        other_token = f"{other.token_bytes(differs)!r} for {target.info.name}"
        return f"{own_token}, {other_token}", "use a head trained for this very model"

    @hookimpl
    def compat(self) -> Compat:
        """Refuse its use as a model."""
        return Compat(refusals=[Refusal(f"{self.head.name}: {NO_MODEL}", _mend(self.head))])


def from_gguf(file: GgufFile, weights: bool) -> HeadFile:
    """The head in a GGUF file of architecture eagle3 or dflash."""
    from spec_targets.tokenizer.gguf_vocabulary import from_gguf as tokenizer_of

    head, source = gguf_head.read(file)
    has = "tokenizer.ggml.model" in file.metadata
    tokenizer = tokenizer_of(file.metadata, file.path.name) if has else None
    return _refuse_as_model(HeadFile(head, source, tokenizer, file.path), weights)


def from_directory(directory: Path, raw: dict[str, Any], weights: bool) -> HeadFile:
    """The head in a Hugging Face directory whose config is one's (``hf.is_head``)."""
    return _refuse_as_model(HeadFile(*hf_head.read(directory, raw), path=directory), weights)


def _refuse_as_model(file: HeadFile, weights: bool) -> HeadFile:
    """Refuse to load it as a model."""
    if weights:
        raise UsageError(f"{file.head.name}: {NO_MODEL}", hint=_mend(file.head))
    return file


def _mend(head: Head) -> str:
    return f"use it with a method and its model: -m MODEL --method {head.kind}=FILE"
