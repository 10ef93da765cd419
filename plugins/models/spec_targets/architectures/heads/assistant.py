"""Gemma 4's assistants: a small decoder whose attention reads the target's keys and values, and stores none.

It reads [the embedding of the last token in the target's table | the target's last state], and gives a state of the
target's width in return, which stands in the place of the target's after a drafted token. All drafted tokens share
one position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import attrs
import torch
from spec_kernels.model.build import Builder
from spec_kernels.model.head import PREFIX
from spec_kernels.model.ops import Clusters, Concat, Embed, Input, Linear, Model, Op, Pick, Tap, Weight
from spec_kernels.model.source import Shape, ShapeRecorder, TensorSource
from torch import Tensor

from spec_core import TargetInfo
from spec_core.errors import UsageError
from spec_core.toolkit import CacheReader, cache_reader
from spec_targets.architectures import by_class, by_name, gemma4
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
from spec_targets.architectures.heads.head import Problem
from spec_targets.architectures.heads.names import ASSISTANT_CLASSES
from spec_targets.architectures.heads.tensors import DAMAGED
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.rotation import tables
from spec_targets.architectures.values import read_int
from spec_targets.formats.gguf import GgufFile
from spec_targets.formats.hf_weights import HfWeights

ORDER = "masked_embedding.token_ordering"
"""Tensor of directories: tokens, a cluster's side by side."""
CLUSTERS_MAX = 64
"""Clusters of a row that are read at most."""


@attrs.frozen(eq=False)
class Assistant:
    """Sizes of an assistant. config: of its own layers, in whose windows the target's rows are counted.

    target_width: of the target's stream. clusters: of the output matrix, 0: it is read whole; used: of them in a row.
    order: int64 [vocab], the token of every row of logits, where they are ordered by cluster. divisors: of the
    rotation.
    """

    kind = "assistant"
    config: Config
    target_width: int
    clusters: int = 0
    used: int = 0
    order: Tensor | None = None
    divisors: Tensor | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def description(self) -> str:
        """What was recognised, in one line."""
        return "assistant of Gemma 4"

    def fit_to(self, target: TargetInfo, reading: str = "auto") -> Assistant:
        """Itself: its file states everything."""
        return self

    def sources(self, layers: int, reading: str = "auto") -> tuple[int, ...]:
        """The hidden state that it reads: the one after the last norm."""
        return (layers,)

    def operations(self, b: Builder, layers: Mapping[bool, int]) -> Iterator[Op]:
        """Operations with input ``hidden`` and taps ``final``, a state of the target's width, and ``logits``.

        b: reads its tensors. layers: of the target's cache, for blocks with and without a window.
        """
        c, width = self.config, self.target_width
        table = Weight("token_embd.weight", c.vocab, width)
        yield Input("hidden", width)
        yield Embed("e", table, width**0.5)
        yield Concat(("e", "hidden"), "z")
        yield b.linear("z", "x", "nextn.pre_projection", (c.width, 2 * width))
        for i in range(c.layers):
            heads = c.heads_of(i)
            yield from gemma4.block(b.at(f"blk.{i}.", layers[bool(heads.window)], heads), c, i)
        yield Pick("x", "x", "final")
        yield b.norm("x", "h", "output_norm.weight")
        yield b.linear("h", "state", "nextn.post_projection", (width, c.width))
        yield Tap("state", "final")
        yield Pick("h", "h", "logits")
        yield from self._logits(b)

    def _logits(self, b: Builder) -> Iterator[Op]:
        c = self.config
        head = b.matrix("token_embd.weight", (c.vocab, c.width))
        if self.order is None:
            yield Linear("h", ("logits",), (head,), (None,))
        else:
            yield b.linear("h", "scores", "centroids", (self.clusters, c.width))
            yield Clusters("h", "scores", "logits", b.weight("token_embd.weight", self.order), self.used)
        yield Tap("logits", "logits")

    @property
    def info(self) -> TargetInfo:
        """Its sizes, by the names that targets have for theirs."""
        c = self.config
        return TargetInfo(
            name=c.name, vocab=c.vocab, width=c.width, layers=c.layers, context=c.context, family=self.kind
        )

    def rotation(self) -> tuple[Tensor, float]:
        """See ``checkpoint.DraftHead``; of blocks without a window."""
        return tables(self.config, self.divisors, 0)[0][:2]

    def model(self, source: TensorSource, reader: CacheReader, blocks: int) -> Model:
        """Its operations over the cache of a target of this many blocks. source: its tensors, prefixed, and the
        target's."""
        own, shapes = Builder(self.config.block(False), source, PREFIX), cast(Any, reader.shapes)
        layers = {kind: reader.layer(block) for kind, block in last_blocks(reader, blocks).items()}
        rotations = tables(self.config, self.divisors, 0)
        return Model(tuple(self.operations(own, layers)), *rotations[0][:2], local=rotations[1], borrowed=tuple(shapes))

    def blocks(self, target: Any) -> frozenset[int]:
        """Blocks of a target whose keys and values it reads."""
        reader = cache_reader(target)
        return frozenset() if reader is None else frozenset(last_blocks(reader, target.info.layers).values())

    def misfit(self, target: Any, reading: str = "auto") -> Problem | None:
        """Why it cannot draft for a target, or None: other widths, vocabulary, or heads in the cache."""
        c, info, reader = self.config, target.info, cache_reader(target)
        hint = "use the assistant of this very model"
        if (self.target_width, c.vocab) != (info.width, info.vocab):
            fact = f"{c.name}: this assistant is for a model of width {self.target_width} with {c.vocab} tokens"
            return f"{fact}, {info.name} has {info.width} and {info.vocab}", hint
        if reader is None:
            fact = f"{c.name}: an assistant reads keys and values of the target, {info.name} shows none of its cache"
            return fact, "load a model file, which this package runs itself"
        last = last_blocks(reader, info.layers)
        for kind, words in ((True, "with a window"), (False, "without a window")):
            needed = next((c.heads_of(i) for i in range(c.layers) if bool(c.windows[i]) == kind), None)
            block = reader.heads(last[kind]) if kind in last else None
            stored = None if block is None else (block.kv_heads, block.dim)
            if needed is not None and (needed.kv_heads, needed.dim) != stored:
                has = "no such block" if stored is None else f"{stored[0]} key heads of {stored[1]}"
                return (
                    f"{c.name}: this assistant reads {needed.kv_heads} key heads of {needed.dim} in blocks {words}, "
                    f"{info.name} has {has}",
                    hint,
                )
        return None

    def tensor_shapes(self, source: TensorSource) -> dict[str, Shape]:
        """Raise UsageError for a missing, misshapen or unknown tensor; returns the shapes."""

        def compare(name: str, shape: tuple[int, ...] | None, needed: tuple[int, ...]) -> None:
            if shape is None:
                raise UsageError(
                    f"{self.name}: tensor {name!r} is missing, an assistant needs it", hint="get the file again"
                )
            if shape != needed:
                raise UsageError(
                    f"{self.name}: tensor {name!r} has shape {list(shape)}, {list(needed)} was needed", hint=DAMAGED
                )

        recorder = ShapeRecorder(source, compare)
        for _ in self.operations(Builder(self.config.block(False), recorder), {True: 0, False: 0}):
            pass
        for name in getattr(source, "names", tuple)():
            if name not in recorder.wanted and name != gemma4.ROTATION:
                raise UsageError(
                    f"{self.name}: tensor {name[:80]!r} is not part of an assistant as supported here",
                    hint="its drafts would be wrong without it; use another file",
                )
        return recorder.wanted


def last_blocks(reader: CacheReader, blocks: int) -> dict[bool, int]:
    """The last block with a window and the last without, of those with attention."""
    heads = {i: shape for i in range(blocks) if (shape := reader.heads(i)) is not None}
    return {bool(shape.window): i for i, shape in heads.items()}


# GGUF


class AssistantKeys(Keys):
    """Keys of an assistant's file: its blocks are counted as next-token layers too."""

    def layers(self) -> int:
        layers = self.integer("block_count")
        if not 0 < layers <= len(self.file.tensors):
            raise UsageError(f"{self.where}: {layers} blocks and {len(self.file.tensors)} tensors", hint=DAMAGED)
        return layers


def from_gguf(file: GgufFile) -> HeadCheckpoint:
    """The assistant in a GGUF file. Its window counts the query, which has no row in the cache, as llama.cpp does."""
    keys = AssistantKeys(file, file.metadata["general.architecture"])
    config = _own_layers(gemma4.from_gguf(keys), file.path.name, -1)
    source = by_name.weights_of(file, config)
    divisors = by_name.divisors_of(source, config)
    head = Assistant(config, keys.integer("embedding_length_out"), divisors=divisors)
    return HeadCheckpoint(head, source, path=file.path)


# Hugging Face


def from_directory(directory: Path, raw: Mapping[str, Any]) -> HeadCheckpoint:
    """The assistant in a directory. Its window is one row wider than the target's, as in transformers."""
    where, text = directory.name, raw.get("text_config")
    if not isinstance(text, Mapping):
        raise UsageError(f"{where}: config.json has text_config = {repr(text)[:60]}", hint="get the directory again")
    config = _own_layers(gemma4.from_hf(ConfigJson(text, "gemma4", ASSISTANT_CLASSES[0], where)), where, 1)
    source = by_class.weights_of(directory, config)
    width = read_int(raw, "backbone_hidden_size", where)
    ordered = raw.get("use_ordered_embeddings") is True
    head = Assistant(config, width, **(_clusters(raw, source, config, where) if ordered else {}))
    return HeadCheckpoint(head, source, path=directory)


def _clusters(raw: Mapping[str, Any], weights: HfWeights, config: Config, where: str) -> dict[str, Any]:
    """Fields of an output matrix in clusters. Raises UsageError for an order that is none."""
    count, used = read_int(raw, "num_centroids", where), read_int(raw, "centroid_intermediate_top_k", where)
    stored = weights.tensors.get(ORDER)
    if stored is None or stored.type not in ("I64", "I32") or tuple(stored.shape) != (config.vocab,):
        facts = "missing" if stored is None else f"{stored.type} {list(stored.shape)}"
        raise UsageError(f"{where}: tensor {ORDER!r} is {facts}, I64 [{config.vocab}] was needed", hint=DAMAGED)
    order = stored.load().long()
    if not torch.equal(order.sort().values, torch.arange(config.vocab)):
        raise UsageError(f"{where}: tensor {ORDER!r} does not list every token once", hint=DAMAGED)
    if config.vocab % count or not used <= min(count, CLUSTERS_MAX):
        raise UsageError(
            f"{where}: {used} of {count} clusters of {config.vocab} tokens are read; clusters of equal size, and at "
            f"most {CLUSTERS_MAX} of them, were needed",
            hint=DAMAGED,
        )
    return {"clusters": count, "used": used, "order": order}


def _own_layers(config: Config, where: str, margin: int) -> Config:
    """The checked config, with layers that store nothing. margin: rows that its windows have more than stated."""
    attrs.evolve(config, sharing=0).check(where)
    if config.per_layer or config.experts:
        raise UsageError(f"{where}: an assistant with experts or embeddings for each block", hint="use another file")
    windows = tuple(max(1, window + margin) if window else 0 for window in config.windows)
    return attrs.evolve(config, arch=gemma4.GEMMA4.name, sharing=config.layers, windows=windows)
