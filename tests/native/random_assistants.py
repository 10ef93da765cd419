"""Random assistants over random caches: sizes, clusters, windows and types of weights are drawn.

Drafts in one native call are held against the same layers token by token, and against the reference.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import attrs
import torch
from spec_kernels import native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.build import Builder
from spec_kernels.model.head import spread_logits
from spec_kernels.model.ops import Embed, Input, Model, Op, Store, Weight
from spec_kernels.model.reference import Reference
from spec_kernels.model.shapes import HeadShape
from spec_kernels.model.source import ShapeRecorder
from spec_kernels.native.executor import Native, Options
from spec_methods.assistant.layer import LastPair, Layer
from spec_targets.architectures.config import Config
from spec_targets.architectures.heads.assistant import Assistant
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
from spec_targets.architectures.rope import Scaling
from torch import Tensor

from spec_core.toolkit import DraftLimits
from tests.native.programs import FAR, Drawn

DRAFT = 4
ABSENT = ("attn_v", "exps", "ffn_gate_inp", "bias", "rope", "output.")


class Tensors(Drawn):
    """Tensors of known shapes, every matrix of a type drawn for it."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], seed: int) -> None:
        self.shapes, self.seed, self.interleaved = shapes, seed, False


class Present:
    """Tensors of the blocks of an assistant, by name alone."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        return None if any(part in name for part in ABSENT) else ()


@attrs.frozen
class Reader:
    """A cache of random rows. rows: of the sequence."""

    shapes: tuple[HeadShape, ...]

    def heads(self, block: int) -> HeadShape:
        return self.shapes[block]

    def layer(self, block: int) -> int:
        return block


@attrs.frozen
class Rows:
    """The rows of a sequence."""

    memory: Any
    count: int


@attrs.frozen
class Case:
    """An assistant, the heads of the target's cache, and the number of its rows. width: of the target."""

    seed: int
    head: Assistant
    reader: Reader
    rows: int
    options: Options

    def executors(self) -> Iterator[tuple[str, Any]]:
        """The reference, and native executors of all instruction sets."""
        ops, source = tuple(self._filling()), self._table()
        yield "reference", Reference(Model(ops), source)
        for isa in native.instruction_sets():
            yield isa, Native(Model(ops), source, replace(self.options, isa=isa))

    def _table(self) -> Tensors:
        return Tensors({"token_embd.weight": (self.head.config.vocab, self.head.target_width)}, self.seed)

    def _filling(self) -> Iterator[Op]:
        """Operations that write given rows to every layer."""
        yield Embed("x", Weight("token_embd.weight", self.head.config.vocab, self.head.target_width))
        for layer, shape in enumerate(self.reader.shapes):
            yield Input(f"k{layer}", shape.kv_width)
            yield Input(f"v{layer}", shape.kv_width)
            yield Store(f"k{layer}", f"v{layer}", shape, layer)

    def cache(self, executor: Any) -> Any:
        """A cache with the rows, and others behind them that no draft may read."""
        numbers, count = torch.Generator().manual_seed(self.seed), self.rows + 3
        cache = executor.cache(count)
        inputs = {
            f"{part}{layer}": torch.randn(count, shape.kv_width, generator=numbers) * shape.dim**-0.5
            for layer, shape in enumerate(self.reader.shapes)
            for part in "kv"
        }
        for rows in inputs.values():
            rows[self.rows :] = torch.nan
        at = torch.arange(count)
        executor.run(ForwardBatch(torch.zeros_like(at), at, [SequenceRows(cache, 0, count, 0)], inputs=inputs, taps=()))
        return cache

    def file(self) -> HeadCheckpoint:
        recorder = ShapeRecorder(Present())
        for _ in self.head.operations(Builder(self.head.config.block(False), recorder), {True: 0, False: 0}):
            pass
        return HeadCheckpoint(self.head, Tensors(dict(recorder.wanted), self.seed))

    def drafts(self, executor: Any) -> tuple[list[int], Tensor, list[int]]:
        """Tokens and logits of a draft token by token, and the tokens of one in one call."""
        layer = Layer(self.file(), executor, self.reader, len(self.reader.shapes), self.seed % 2 == 0)
        numbers = torch.Generator().manual_seed(self.seed + 1)
        pair = LastPair(self.head.target_width)
        pair.take(
            self.rows - 1, [self.seed % self.head.config.vocab], torch.randn(1, pair.width, generator=numbers), {}
        )
        pair.rows = Rows(self.cache(executor), self.rows)
        tokens, logits, part = [], [], pair.pairs()
        for step in range(DRAFT):
            state, rows = layer.forward([part])
            logits.append(spread_logits(rows, layer.ids, layer.vocab)[0])
            tokens.append(int(logits[-1].argmax()))
            part = pair.own(step + 1, tokens[-1], state)
        limits = DraftLimits(DRAFT, DRAFT, 1, 0.0, frozenset())
        (whole,) = layer.draft([pair.pairs()], [limits]).found
        return tokens, torch.stack(logits), whole.tokens


def case(seed: int) -> Case:
    rng = random.Random(f"{seed} assistant")
    groups, local, wide = rng.choice([1, 2, 4]), rng.choice([8, 12, 36, 64, 256]), rng.choice([16, 24, 80, 320, 512])
    kv, wide_kv = groups * rng.choice([1, 2]), groups
    window, layers, clusters = rng.choice([2, 5, 17]), rng.randint(1, 4), rng.choice([0, 2, 5, 12])
    vocab = rng.choice([7, 16, 31]) * (clusters or rng.randint(1, 20))
    config = Config(
        arch="gemma4", name="random", layers=layers, width=rng.choice([20, 32, 36, 64, 100]),
        heads=kv * rng.choice([1, 3]), kv_heads=wide_kv, head=wide, ff=rng.choice([20, 32, 72]), vocab=vocab,
        context=256, eps=1e-6, rope_base=1e6, rotary_dim=wide, scaling=Scaling("proportional", rng.choice([0.25, 1.0])),
        scale=1.0, windows=tuple(rng.choice([window, 0]) for _ in range(layers)), local_base=1e4, local_head=local,
        local_kv_heads=kv, sharing=layers,
    )  # fmt: skip
    numbers = torch.Generator().manual_seed(seed)
    ordered = {
        "clusters": clusters,
        "used": rng.randint(1, max(1, clusters)),
        "order": torch.randperm(vocab, generator=numbers),
    }
    head = Assistant(config, rng.choice([20, 32, 48, 96]), **(ordered if clusters else {}))
    shape = lambda heads, dim, window: HeadShape(config.heads, heads, dim, dim, 1.0, window)
    shapes = [shape(*rng.choice([(kv, local, window), (wide_kv, wide, 0)])) for _ in range(rng.randint(0, 2))]
    shapes += [shape(kv, local, window), shape(wide_kv, wide, 0)]
    options = Options(rng.choice(["int15", "int8"]), "float32")
    return Case(seed, head, Reader(tuple(shapes)), rng.randint(1, 40), options)


def wrong(seed: int) -> list[str]:
    """Wrong results, in words; empty if the assistant is correct."""
    tested, results = case(seed), {}
    torch.set_num_threads(1)
    for name, executor in tested.executors():
        results[name] = tested.drafts(executor)
    exact, faults = results.pop("reference"), []
    best = next(iter(results.values()))
    for name, (tokens, logits, whole) in results.items():
        if tokens != whole:
            faults.append(f"{name}: a draft in one call is {whole}, token by token {tokens}")
        if not torch.equal(logits, best[1]):
            faults.append(f"{name}: other bits than the best instruction set")
        if not torch.isfinite(logits).any(1).all() or torch.isnan(logits).any():
            faults.append(f"{name}: rows behind the committed ones are read")
    there = torch.isfinite(exact[1][0]) & torch.isfinite(best[1][0])
    a, b = exact[1][0][there], best[1][0][there]  # later rows are behind other states
    share = ((a - b).square().mean().sqrt() / (a.max() - a.min()).clamp_min(1.0)).item()
    if tested.options.activations == "int15" and share > FAR:
        faults.append(f"drafts are far from the reference: {share:.2%}")
    return faults
