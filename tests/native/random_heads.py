"""Random draft heads on random models: widths, borrowed matrices, inputs and flags are drawn, even ones that must be
refused. Drafts are held against the reference, texts against plain decoding, prompts given as embeddings included.
Seconds for the suite; for long in tests/campaigns/soak.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import attrs
import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows, numbers
from spec_kernels.model.head import spread_logits, tokens_of
from spec_methods import eagle3
from spec_methods.block_drafters import drafter as blocks
from spec_methods.block_drafters.layers import Context, Layers
from spec_methods.block_drafters.sequential import sequential_part
from spec_methods.eagle3.layer import Layer
from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
from spec_targets.architectures.heads.head import Head
from spec_targets.architectures.heads.lattice import Lattice
from torch import Tensor

from spec_core import Request, Run, Target, UsageError
from spec_core.errors import Refused
from tests.native.programs import FAR, SHALLOW, Drawn, Program, program

BLOCKS: Any = ("dflash", "dspark", "dflash2", "dspine", "lilicorr")
METHODS: dict[str, Any] = {"eagle3": eagle3, **dict.fromkeys(BLOCKS, blocks)}
WIDTHS = (20, 32, 36, 64, 72, 100, 128)
SETTINGS = {"eagle3": {"p_min": 0.0, "draft_max": 4}, "dflash": {"p_min": 0.0}}
"""Of a method; those of the other block drafters are dflash's."""
TOKENS = 12
"""Tokens of a text."""


class HeadTensors(Drawn):
    """Tensors of the shapes that a head wants, every matrix of a type drawn for it."""

    def __init__(self, head: Head, seed: int) -> None:
        self.seed, self.shapes = seed, head.tensor_shapes()


@attrs.frozen
class Case:
    """A target and a head. fits: whether the head can draft for the target."""

    seed: int
    made: Program
    head: Head

    @property
    def fits(self) -> bool:
        return self.head.width == self.made.config.width or (
            self.head.own_embedding and (self.head.own_output or self.head.tied)
        )

    def target(self, kernels: str) -> Target:
        options = {"activations": self.made.options["activations"]} if kernels == "native" else {}
        return self.made.target(kernels=kernels, **options)

    def file(self) -> HeadCheckpoint:
        return HeadCheckpoint(self.head, HeadTensors(self.head, self.seed))

    def generate(self, target: Target, request: Request, drafting: bool) -> tuple[list[int], int]:
        """The text, and the number of drafted tokens."""
        kind, drafted = self.head.kind, 0
        settings = {"file": "random", **SETTINGS.get(kind, SETTINGS["dflash"])}
        settings["width"] = 1 + 2 * (self.seed % 2)  # chains, and trees
        with mock.patch.object(METHODS[kind], "load", lambda *a, **k: self.file()):
            run = Run(target, [(kind, settings)] if drafting else [])

        def count(step: Any) -> None:
            nonlocal drafted
            drafted += sum(part.drafted for part in step.parts)

        run.observe(count)
        return run.generate(request).result.tokens, drafted


def case(seed: int) -> Case:
    rng = random.Random(f"{seed} head")
    base = program(seed)
    kind = rng.choice(["dflash", "dflash2", "dspark", "eagle3"])
    if kind == "dflash":
        kind = random.Random(f"{seed} kind").choice(["dflash", "dspine", "lilicorr"])
    sizes = _sizes(rng, base)
    return Case(seed, base, _eagle3(sizes, rng) if kind == "eagle3" else _block(kind, sizes, rng))


def _sizes(rng: random.Random, program: Program) -> dict[str, Any]:
    """Fields of both kinds. Half of the widths are the target's; most of the others come with their own matrices."""
    config, dim = program.config, rng.choice([8, 20, 32, 36, 64, 72])
    width, kv_heads = (config.width if rng.random() < 0.5 else rng.choice(WIDTHS)), rng.randint(1, 2)
    own = width != config.width and rng.random() < 0.7
    own_output = own or rng.random() < 0.5
    rows = rng.randint(1, config.vocab) if own_output and rng.random() < 0.5 else config.vocab
    inputs = rng.randint(1, 12)
    chosen = torch.randperm(config.vocab, generator=torch.Generator().manual_seed(program.weights.seed))[:rows]
    return {
        "name": "random",
        "producer": "nobody",
        "width": width,
        "target_width": config.width,
        "inputs": inputs,
        "ids": tuple(rng.randint(0, config.layers) for _ in range(inputs)),
        "certain": True,
        "heads": kv_heads * rng.choice([1, 2, 3]),
        "kv_heads": kv_heads,
        "head": dim,
        "ff": rng.choice([20, 32, 72, 96]),
        "eps": 1e-6,
        "context": 128,
        "rope_base": 1e4,
        "vocab": config.vocab,
        "draft_vocab": rows,
        "d2t": None if rows == config.vocab else chosen.sort()[0],
        "own_embedding": own or rng.random() < 0.3,
        "own_output": own_output,
        "qk_norm": rng.random() < 0.5,
        "biases": rng.random() < 0.3,
        "fc_bias": rng.random() < 0.3,
        "output_bias": rng.random() < 0.3,
        **_dialect(program, dim),
    }


def _dialect(program: Program, dim: int) -> dict[str, Any]:
    """Fields that only some dialects have, drawn apart from the others."""
    other = random.Random(f"{program.weights.seed} dialect")
    return {
        "sinks": other.random() < 0.3,
        "rotary": other.choice([0, 0, dim // 2 // 2 * 2]),
        "normed": other.random() < 0.5,
        "act": other.choice(["silu", "silu", "gelu"]),
    }


def _eagle3(sizes: dict[str, Any], rng: random.Random) -> Head:
    norm = rng.choice([None, None, "norm_before_fc", "fc_norm"])
    flags = {name: rng.random() < 0.5 for name in ("norm_before_residual", "norm_output")}
    layers, twice = rng.choice([1, 1, 2]), rng.random() < 0.2
    return Head("eagle3", layers=layers, **sizes, **flags, norm_twice=twice, **({norm: True} if norm else {}))


def _block(kind: Any, sizes: dict[str, Any], rng: random.Random) -> Head:
    layers = rng.randint(1, 3)
    windows = tuple(rng.choice([0, 0, 5]) for _ in range(layers))
    causal = tuple(rng.random() < 0.5 for _ in range(layers))
    block = {"block": rng.randint(2, 8), "mask": rng.randrange(sizes["vocab"]), "windows": windows, "causal": causal}
    head = Head(kind, layers=layers, **sizes, **block, **_sequential(kind, sizes["width"], rng))
    other = random.Random(f"{layers} {block} gates")
    some = [head.kv_heads * other.choice([1, 2, 3]) for _ in range(layers)]
    gates: Any = other.choice(["", "", "heads", "numbers"])
    head = attrs.evolve(head, gate=gates, query_heads=tuple(some) if gates else (), anchored=other.random() < 0.3)
    tied = head.own_embedding and not head.own_output and rng.random() < 0.5
    each, context = rng.random() < 0.3, rng.random() < 0.3
    return attrs.evolve(head, tied=tied, fc_norm=each, context_norm=context, logit_cap=rng.choice([0.0, 0.0, 20.0]))


def _sequential(kind: str, width: int, rng: random.Random) -> dict[str, Any]:
    """Fields of a Markov part, or of convolutions and a selector."""
    rank = rng.randint(1, 40)
    if kind == "dspark":
        return {"markov": rank, "confidence": rng.choice([0, width, width + rank]), "anchor": rng.random() < 0.5}
    if kind == "dspine":
        return {"transfer": rank, "message": rng.randint(1, 40), "candidates": rng.randint(1, 9)}
    if kind == "lilicorr":
        heads = rng.choice([1, 2, 4])
        own = width if rng.random() < 0.3 else heads * rng.randint(1, 9)
        heads = heads if own % heads == 0 else 1
        lattice = Lattice(own, rng.randint(1, 2), heads, rng.randint(1, 40), rng.randint(1, 20), 1e-6, 5.0)
        return {"lattice": lattice, "candidates": rng.randint(1, 9)}
    if kind == "dflash2":
        groups = rng.choice([n for n in (1, 2, 4, width) if width % n == 0])
        return {
            "conv_taps": rng.randint(1, 3),
            "conv_groups": groups,
            "selector": rank,
            "candidates": rng.randint(1, 9),
        }
    return {}


def wrong(seed: int) -> list[str]:
    """Wrong results, in words; empty if the head is correct."""
    tested = case(seed)
    target = tested.target("native")
    torch.set_num_threads(random.Random(f"{seed} threads").randint(1, 3))
    return [*_embeds_of_wrong_widths(tested, target), *(_texts if tested.fits else _check_accepted)(tested, target)]


def _check_accepted(case: Case, target: Target) -> Iterator[str]:
    """A head that cannot draft for its target is refused before anything runs."""
    try:
        case.generate(target, Request([1, 2, 3], max_tokens=2), drafting=True)
    except Refused as refused:
        if "width" not in str(refused):
            yield f"refused for another reason: {refused}"
    else:
        yield "a head that does not fit is accepted"


def _texts(case: Case, target: Target) -> Iterator[str]:
    for request in requests(case):
        plain, _ = case.generate(target, request, drafting=False)
        text, drafted = case.generate(target, request, drafting=True)
        if text != plain:
            yield f"another text{' behind embeddings' if request.embeds else ''}"
        if not drafted:
            yield f"no draft{' behind embeddings' if request.embeds else ''}"
    if (share := far(case)) > FAR:
        yield f"drafts are far from the reference: {share:.2%}"


def requests(case: Case) -> Iterator[Request]:
    """A prompt of tokens, and one in which some are given as embeddings, among them mostly the last."""
    rng, config = random.Random(f"{case.seed} prompts"), case.made.config
    shallow = config.layers <= SHALLOW
    prompt = [rng.randrange(config.vocab) for _ in range(rng.randint(3, 30 if shallow else 6))]
    limits: dict[str, Any] = {"max_tokens": TOKENS if shallow else 3, "ignore_eos": True}
    some = {rng.randrange(len(prompt)) for _ in range(3)} | ({len(prompt) - 1} if rng.random() < 0.7 else set())
    numbers = torch.Generator().manual_seed(case.seed)
    yield Request(prompt, **limits)
    embeds = {at: 0.06 * torch.randn(config.width, generator=numbers) for at in some}
    yield Request(prompt, embeds=embeds, **limits)


def _embeds_of_wrong_widths(case: Case, target: Target) -> Iterator[str]:
    """A request is refused, and so is a batch that is passed to the executor directly."""
    rng, width, executor = random.Random(f"{case.seed} embeds"), case.made.config.width, target.executor
    for other in {rng.randint(1, width - 1), width + rng.randint(1, 64), 1 << 12}:
        try:
            case.generate(target, Request([1, 2], max_tokens=1, embeds={0: torch.zeros(other)}), drafting=False)
            yield f"an embedding of width {other} is accepted"
        except UsageError:
            pass
        embeds = {0: torch.zeros(other)}
        try:
            executor.run(ForwardBatch(numbers([-1]), numbers([0]), [SequenceRows(executor.cache(16), 0, 1, 0)], embeds))
            yield f"the executor takes an embedding of width {other}"
        except ValueError:
            pass


def far(case: Case) -> float:
    """Root mean square of the difference of a draft's logits to the reference's, as a share of their range.

    With 15 bits: those of 8 would need a bound that hides faults, and test_products.py holds their products to the bit.
    """
    if case.made.config.layers > SHALLOW:
        return 0.0
    rng, head = random.Random(f"{case.seed} states"), case.head
    numbers, rows = torch.Generator().manual_seed(case.seed), rng.randint(1, 40)
    states = [torch.randn(rows, head.target_width, generator=numbers) for _ in range(head.inputs)]
    tokens = [rng.randrange(head.vocab) for _ in range(rows)]
    both = case.target("reference"), case.made.target(kernels="native", activations="int15")
    exact, actual = (_logits(case, of, states, tokens) for of in both)
    there = exact > -torch.inf
    a, b = exact[there], actual[there]
    return ((a - b).square().mean().sqrt() / (a.max() - a.min()).clamp_min(1.0)).item()


def _logits(case: Case, target: Target, states: list[Tensor], tokens: list[int]) -> Tensor:
    facts, trunk = case.file(), target.executor
    if case.head.fills_blocks:
        layers = Layers(facts, trunk)
        context = Context(layers.fill.cache(64), token=tokens[-1])
        context.take(0, torch.cat(states, -1))
        layers.learn([context])
        (rows,), (states,) = layers.blocks([context], [layers.longest])
        if case.head.markov:
            part = sequential_part(facts, trunk)
            return torch.stack([part.follow([(tokens[0], *row)])[0].logits for row in zip(rows, states, strict=True)])
        return spread_logits(rows, tokens_of(case.head, rows.device), case.head.vocab)
    layer = Layer(facts, trunk)
    memory = layer.memory()
    memory.take(0, tokens, layer.features(states), {})
    return layer.logits(layer.forward([memory.pairs()])[1])
