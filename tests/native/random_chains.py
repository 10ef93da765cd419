"""Random models with one to four layers that predict further: drafts natively and by the reference."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import attrs
import torch
from spec_kernels import native
from spec_kernels.model.source import ShapeRecorder
from spec_kernels.native.executor import Native, Options
from spec_methods.mtp.layer import draft_layers
from spec_targets.architectures.config import Config
from spec_targets.architectures.decoder import nextn_layer
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.load import make_target
from torch import Tensor

from spec_core.toolkit import DraftLimits, next_token_layers
from tests.native import programs
from tests.native.programs import FAR, SHALLOW, Drawn, bare

ARCHS = ("qwen3next", "qwen35", "qwen35moe", "glm4moe")
OWN = ("nextn.embed_tokens.weight", "nextn.shared_head_head.weight", "nextn.shared_head_norm.weight")
"""Tensors that a layer has itself or takes from the trunk."""
DRAFT = 6


class LayerTensors(Drawn):
    """Tensors of a trunk and of the layers behind it."""

    def __init__(self, config: Config, seed: int) -> None:
        super().__init__(config, seed)
        trunk = self.shapes
        del self.shapes
        recorders = [ShapeRecorder(self) for _ in range(config.nextn)]
        for depth, recorder in enumerate(recorders):
            nextn_layer(config, recorder, self.interleaved, depth)
        self.shapes = {name: shape for recorder in recorders for name, shape in recorder.wanted.items()} | trunk

    def shape(self, name: str) -> tuple[int, ...] | None:
        if not hasattr(self, "shapes") and bare(name) in OWN:
            return () if random.Random(f"{self.seed} {name}").random() < 0.5 else None
        return super().shape(name)


@attrs.frozen
class Case:
    """A model, how many pairs its layers get at a time, and the bits of its rows."""

    seed: int
    config: Config
    weights: LayerTensors
    pieces: tuple[int, ...]
    activations: str

    def targets(self) -> Iterator[tuple[str, Any]]:
        """The reference, and native targets of all instruction sets."""
        yield "reference", self._target(kernels="reference", dtype="float32")
        for isa in native.instruction_sets():
            target = self._target(kernels="native", activations=self.activations, cache_dtype="float32")
            was = target.executor
            target.executor = Native(was.model, was.source, Options(self.activations, "float32", False, isa))
            yield isa, target

    def _target(self, **options: Any) -> Any:
        return make_target(Checkpoint(self.config, self.weights), threads=1, **options)

    def drafts(self, target: Any) -> tuple[list[int], Tensor, list[int]]:
        """Of the last draft behind all pairs: tokens and logits token by token, and tokens in one call."""
        layer = draft_layers(next_token_layers(target), target.executor)
        stepwise, whole = layer.memory(), layer.memory()
        numbers, vocab = torch.Generator().manual_seed(self.seed), self.config.vocab
        start = 0
        for count in self.pieces:
            tokens = torch.randint(0, vocab, (count,), generator=numbers).tolist()
            hidden = torch.randn(count, self.config.width, generator=numbers)
            for memory in (stepwise, whole):
                memory.take(start, tokens, hidden, {})
            start += count
            limits = DraftLimits(DRAFT, DRAFT, 1, 0.0, frozenset())
            part = whole.pairs()
            whole.room(whole.done + DRAFT)
            (in_one_call,) = layer.draft([part], [limits]).found
            tokens, logits = self._one_by_one(layer, stepwise)
        return tokens, logits, in_one_call.tokens

    def _one_by_one(self, layer: Any, memory: Any) -> tuple[list[int], Tensor]:
        tokens, rows, part = [], [], memory.pairs()
        for step in range(DRAFT):
            state, row = layer.forward([part])
            rows.append(row[0])
            tokens.append(int(row[0].argmax()))
            part = memory.own(step + 1, tokens[-1], state)
        return tokens, torch.stack(rows)


def case(seed: int) -> Case:
    rng = random.Random(f"{seed} chain")
    config = next(c for c in iter(lambda: programs.config(rng), None) if c.arch in ARCHS and c.layers <= SHALLOW)
    config = attrs.evolve(config, nextn=rng.randint(1, 4))
    pieces = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 4)))
    return Case(seed, config, LayerTensors(config, seed), pieces, rng.choice(["int15", "int8"]))


def wrong(seed: int) -> list[str]:
    """Wrong results, in words; empty if the layers are correct."""
    tested, results = case(seed), {}
    torch.set_num_threads(1)
    faults = []
    for name, target in tested.targets():
        if len(next_token_layers(target)) != tested.config.nextn:
            faults.append(f"{name}: {len(next_token_layers(target))} layers")
        tokens, _, whole = results[name] = tested.drafts(target)
        if tokens != whole:
            faults.append(f"{name}: {tokens} one by one, {whole} in one call")
    best = native.instruction_sets()[0]
    faults += [
        f"{name} and {best} differ" for name in results if name != "reference" and results[name][0] != results[best][0]
    ]
    faults += [
        f"{name}: other logits"
        for name in results
        if name != "reference" and not torch.equal(results[name][1], results[best][1])
    ]
    return faults + _far(tested, results["reference"], results[best])


def _far(tested: Case, expected: tuple, ours: tuple) -> list[str]:
    """Logits that differ from the reference's by more than roundings of 15 bits, up to the first other token."""
    if tested.activations != "int15":
        return []
    same = next((i for i, (a, b) in enumerate(zip(expected[0], ours[0], strict=True)) if a != b), DRAFT)
    exact, near = expected[1][: same + 1], ours[1][: same + 1]
    far = ((exact - near).square().mean().sqrt() / (exact.max() - exact.min())).item()
    return [] if far <= FAR else [f"drafts are far from the reference: {far:.2%}"]
