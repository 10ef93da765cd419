"""Rows alone against rows among drafts: in seconds for the suite, for long in tests/campaigns/soak.py."""

from __future__ import annotations

import functools
import math
import random

import torch
from spec_kernels.model.source import bytes_of
from spec_targets.architectures.config import Config
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.load import make_target
from spec_targets.runtime.weights import trunk_shapes
from torch import Tensor

from spec_core import Draft, Sampling, Target
from spec_core.sampling.choose import choose_token
from tests.targets.drive import forward, part, sequence

SAMPLING = Sampling(temperature=0.8)
SHAPE = Config(
    arch="qwen3",
    name="100 M, random",
    layers=12,
    width=768,
    heads=12,
    kv_heads=4,
    head=64,
    ff=2048,
    vocab=32_000,
    context=2048,
    eps=1e-6,
    rope_base=1e6,
    rotary_dim=64,
)
"""100 M weights."""
LONGEST_PROMPT, LENGTH, MAX_DRAFTS = 60, 64, 17


class RandomWeights:
    """Tensors of the shapes that a config wants."""

    where, interleaved = "random", True

    def __init__(self, config: Config) -> None:
        self.shapes = trunk_shapes(config, self)
        self.numbers = torch.Generator().manual_seed(0)

    def names(self) -> list[str]:
        return list(self.shapes)

    def shape(self, name: str) -> tuple[int, ...] | None:
        return getattr(self, "shapes", {}).get(name)

    def load(self, name: str) -> Tensor:
        shape = self.shapes[name]
        return torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=self.numbers) * shape[1] ** -0.5

    def type(self, name: str) -> str:
        return "F32"

    def nbytes(self, name: str) -> int:
        return 4 * math.prod(self.shapes[name])

    def blocks(self, name: str) -> Tensor:
        return bytes_of(self.load(name))


@functools.cache
def hundred_million(kernels: str, threads: int) -> Target:
    """A target of random weights; its text means nothing."""
    return make_target(Checkpoint(SHAPE, RandomWeights(SHAPE)), kernels=kernels, threads=threads)


def draws(target: Target, seed: int, count: int) -> int:
    """Number of ``count`` seeded draws that have another row among drafts than alone."""
    return _differing(target, seed, count, drawn=True)


def rows(target: Target, seed: int, count: int) -> int:
    """Number of rows of random text with other logits among drafts than alone."""
    return _differing(target, seed, count, drawn=False)


def _differing(target: Target, seed: int, count: int, drawn: bool) -> int:
    rng, differing = random.Random(seed), 0
    while count > 0:
        prompt = [rng.randrange(target.info.vocab) for _ in range(rng.randint(1, LONGEST_PROMPT))]
        tokens, alone = _alone(target, rng, prompt, min(count, LENGTH), drawn)
        beside = _among_drafts(target, rng, tokens, len(prompt))
        differing += int((alone != beside).any(1).sum())
        count -= LENGTH
    return differing


def _alone(target: Target, rng: random.Random, prompt: list[int], n: int, drawn: bool) -> tuple[list[int], Tensor]:
    """The text, and the logits [n, V] each token after the prompt was chosen from, one row in every forward."""
    seq, tokens, logits = _begin(target, prompt), list(prompt), []
    seed = rng.getrandbits(32)
    for t in range(n):
        logits.append(forward(target, part(seq, len(tokens) - 1, tokens[-1:])).logits[0])
        tokens.append(choose_token(logits[-1], SAMPLING, seed, t) if drawn else rng.randrange(target.info.vocab))
    return tokens, torch.stack(logits)


def _among_drafts(target: Target, rng: random.Random, tokens: list[int], prompt: int) -> Tensor:
    """The same logits, from forwards of a row and 1 to 17 drafts: the next tokens of the text, or others."""
    seq, at, rows = _begin(target, tokens[:prompt]), prompt - 1, []
    while at < len(tokens) - 1:
        drafts = tokens[at + 1 : -1][: rng.randint(0, MAX_DRAFTS)]
        wrong = [rng.randrange(target.info.vocab) for _ in range(rng.randint(not drafts, MAX_DRAFTS - len(drafts)))]
        logits = forward(target, part(seq, at, tokens[at : at + 1], Draft(drafts + wrong))).logits
        rows.append(logits[: 1 + len(drafts)])
        at += 1 + len(drafts)
    return torch.cat(rows)


def _begin(target: Target, prompt: list[int]):
    seq = sequence(target, prompt)
    if len(prompt) > 1:
        forward(target, part(seq, 0, prompt[:-1], decides=False))
    return seq
