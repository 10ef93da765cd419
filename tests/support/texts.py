"""Texts of methods against plain decoding's on a dense, a mixture-of-experts and a hybrid model; for long in
tests/campaigns/soak.py."""

from __future__ import annotations

import functools
import random
from itertools import cycle, islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import attrs
import torch
from spec_commands.prompts import read_prompt_file
from spec_kernels import native
from spec_kernels.model.shapes import Experts
from spec_kernels.model.source import bytes_of
from spec_targets.architectures.config import Config
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.load import make_target
from spec_train.heads.export.write import write_head
from spec_zoo import HERE
from torch import Tensor

from spec_core import Request, Run, Sampling, Target, load
from tests.support.draws import RandomWeights
from tests.support.small_heads import train

Methods = list[tuple[str, dict[str, Any]]]
LENGTH, TOGETHER = 96, 5
SAMPLINGS = (Sampling(), Sampling(temperature=0.8), Sampling(temperature=0.8, top_p=0.95))
MIXTURE = Config(
    arch="qwen3moe",
    name="mixture of experts, random",
    layers=4,
    width=192,
    heads=6,
    kv_heads=2,
    head=32,
    ff=512,
    vocab=3072,
    context=2048,
    eps=1e-6,
    rope_base=1e6,
    rotary_dim=32,
    experts=Experts(16, 4),
    expert_ff=128,
)
DRAFTERS = ("ngram", "suffix", "recycling", "draft-model", "ngram+draft-model", "suffix+recycling")
HEADS = ("eagle3", "eagle3-tree", "dflash")
METHODS = {
    "dense": (*DRAFTERS, *HEADS, "ngram+eagle3"),
    "hybrid": (*DRAFTERS, *HEADS, "mtp", "ngram+mtp"),
    "mixture": (*DRAFTERS, *HEADS),
}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "eagle3-tree": ("eagle3", {"width": 3, "draft_max": 3, "p_min": 0.1})
}
"""Settings of names that stand for a method with settings."""


@functools.cache
def target(kind: str) -> Target:
    """The model of a kind: the zoo's, or one of random weights with the zoo's words."""
    if kind == "mixture":
        weights = RandomWeights(MIXTURE)
        tokenizer = load("zoo:pico", weights=False).tokenizer
        target = make_target(
            Checkpoint(MIXTURE, Kept(weights), tokenizer),
            threads=1,
            storage="q8_0" if native.problem() is None else True,
        )
        target.info = attrs.evolve(target.info, companions={"draft-model": "zoo:pico-draft"})
        return target
    return load("zoo:pico" if kind == "dense" else "zoo:pico-hybrid", threads=1)


class Kept:
    """Random weights that are drawn once: the next reading of a tensor finds the same numbers."""

    def __init__(self, weights: RandomWeights) -> None:
        self.weights = weights
        self.load = functools.cache(weights.load)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.weights, name)

    def blocks(self, name: str) -> Tensor:
        return bytes_of(self.load(name))


@functools.cache
def head(kind: str, method: str) -> Path:
    """A head with random weights, for models that have no trained one. It is sure of nothing."""
    torch.manual_seed(0)
    path = Path(mkdtemp()) / f"{method}.gguf"
    write_head(train(method, target(kind)), target(kind), path, "gguf", "f32")
    return path


def chain(kind: str, names: str) -> Methods:
    """Methods and settings of names with + between them."""
    methods = [SETTINGS.get(name, (name, {})) for name in names.split("+")]
    return [(name, more | head_settings(kind, name)) for name, more in methods]


def head_settings(kind: str, method: str) -> dict[str, Any]:
    """Settings of a method that needs a head which the model does not have: it drafts all the same."""
    if kind == "dense" or method not in HEADS:
        return {}
    return {"file": str(head(kind, method)), "p_min": 0.0}


@functools.cache
def prompts() -> list[list[int]]:
    """400: the zoo's two hundred, and the first third of each."""
    tokenizer = load("zoo:pico", weights=False).tokenizer
    whole = [tokenizer.encode(prompt.given) for prompt in read_prompt_file(HERE / "prompts-200.jsonl")]
    return [*whole, *(tokens[: max(1, len(tokens) // 3)] for tokens in whole)]


def requests(part: int, parts: int) -> list[Request]:
    """Every ``parts``-th prompt from ``part`` on, at temperatures by turns."""
    own = prompts()[part::parts]
    return [
        Request(tokens, max_tokens=LENGTH, seed=i, sampling=sampling, ignore_eos=i % 2 == 0)
        for i, (tokens, sampling) in enumerate(zip(own, islice(cycle(SAMPLINGS), part, None), strict=False))
    ]


def differing(kind: str, method: str, part: int, parts: int) -> int:
    """Number of a method's texts that differ from plain decoding's: one by one, and several at once in random order."""
    asked, rng = requests(part, parts), random.Random(part)
    expected = plain_texts(kind, part, parts)
    torch.set_num_threads(1 + part % 2)
    methods = chain(kind, method)
    alone = texts(kind, methods, asked, 1)
    order = rng.sample(range(len(asked)), len(asked))
    mixed = texts(kind, methods, [asked[i] for i in order], TOGETHER)
    together = [mixed[order.index(i)] for i in range(len(asked))]
    return sum(text != text_here for side in (alone, together) for text, text_here in zip(side, expected, strict=True))


@functools.lru_cache
def plain_texts(kind: str, part: int, parts: int) -> list[list[int]]:
    """What plain decoding makes of these requests, on one thread."""
    torch.set_num_threads(1)
    return texts(kind, [], requests(part, parts), 1)


def texts(kind: str, methods: Methods, asked: list[Request], together: int) -> list[list[int]]:
    run = Run(target(kind), methods=methods, max_sequences=together)
    return [generation.result.tokens for generation in run.generate(asked)]
