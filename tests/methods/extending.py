"""Runs in which another method drafts first, and one with a model of its own goes on where that ended."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import attrs
import torch
from torch import Tensor

from spec_core import Compat, Draft, DraftStep, Needs, Request, Run, Sampling, Target, hookimpl, load
from spec_core.contract.batch import Part, Piece
from spec_core.sampling.choose import adjust_row, support
from tests.support.small_models import tiny_gemma4, tiny_gguf, tiny_hybrid, tiny_kimi, tiny_lfm2

SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=0.8),
    "cut": Sampling(temperature=1.1, top_k=40, repetition_penalty=1.3, presence_penalty=0.4),
}


@cache
def target_of(kind: str, kernels: str = "native") -> Target:
    files = {"hybrid": tiny_hybrid, "lfm2": tiny_lfm2, "gemma4": tiny_gemma4, "kimi-linear": tiny_kimi}
    file = files[kind](context=128) if kind in files else tiny_gguf(0, layers=4)
    return load(file, dtype="float32", device="cpu", kernels=kernels)


def requests(sampling: Sampling, count: int = 3, n: int = 24) -> list[Request]:
    return [
        Request([3 * i + 1, 4, i + 9], max_tokens=n, seed=i, sampling=sampling, name=f"{i}", ignore_eos=True)
        for i in range(count)
    ]


def texts_of(target: Target, asked: list[Request]) -> dict[str, list[int]]:
    """{name: prompt and plain output}."""
    plain = Run(target)
    return {r.name: [*r.prompt, *plain.generate(attrs.evolve(r, name="")).result.tokens] for r in asked}


@attrs.define(eq=False)
class Begins:
    """Drafts up to ``longest`` tokens, each right with the given chance; sometimes none. Of random numbers alone.

    drawn: tokens are sampled from a flat distribution instead. branches: a second token beside the first.
    confidence: of every token; None gives none.
    """

    text: dict[str, list[int]]
    right: float = 0.7
    longest: int = 3
    drawn: bool = False
    branches: bool = False
    confidence: float | None = None
    rng: random.Random = attrs.field(factory=lambda: random.Random(0))
    vocab: int = 0

    @hookimpl
    def compat(self, target: Target) -> Compat:
        self.vocab = target.info.vocab
        kinds = {"sampled", "unknown"} if self.drawn else {"deterministic"}
        return Compat(drafts=kinds, needs=Needs(trees=self.branches))

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            ahead = self.text[seq.name][len(seq.tokens) :][: min(budget, self.rng.randint(0, self.longest))]
            if ahead:
                step.propose(seq, self._draw(step, seq, len(ahead)) if self.drawn else self._copy(step, seq, ahead))

    def _copy(self, step: DraftStep, seq: Any, ahead: list[int]) -> Draft:
        ids = [t if self.rng.random() < self.right else (t + 1) % self.vocab for t in ahead]
        parents = list(range(-1, len(ids) - 1))
        if self.branches and step.trees and step.nodes(seq) > len(ids):
            ids, parents = [*ids, (ids[0] + 1) % self.vocab], [*parents, -1]
        sure = None if self.confidence is None else [self.confidence] * len(ids)
        return Draft(ids, parents=parents if parents[-1] < len(ids) - 2 else None, confidence=sure)

    def _draw(self, step: DraftStep, seq: Any, n: int) -> Draft:
        ids = [int(step.noise(seq, i).argmax()) for i in range(n)]
        rows = torch.full((n, self.vocab), 1 / self.vocab, dtype=torch.float64)
        return Draft(ids, probs=rows) if step.wants_probs else Draft(ids, proposal="unknown")


def extensions(part: Part, method: str) -> Iterator[tuple[Piece, list[int]]]:
    """Pieces that a method appended in a step, each with the drafted tokens before it."""
    for piece in part.pieces:
        if piece.source == method and piece.leaf >= 0 and part.draft is not None:
            yield piece, [part.draft.ids[i] for i in part.draft.ancestry(piece.leaf)]


Rows = Callable[[list[int], list[int]], Tensor]
"""(committed text, drafted tokens after it) -> logits [V] of the method alone."""


@attrs.define(eq=False)
class Witness:
    """Draws every appended token again, from rows of the method made anew, and keeps what differs."""

    method: str
    rows: Rows
    seen: int = 0
    behind: set[int] = attrs.field(factory=set)
    wrong: list[Any] = attrs.field(factory=list)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, extends=True)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for part in step.parts:
            for piece, path in extensions(part, self.method):
                self.behind.add(len(path))
                for i in range(len(piece.draft)):
                    self._check(step, part, piece, path, i)

    def _check(self, step: DraftStep, part: Part, piece: Piece, path: list[int], i: int) -> None:
        seq, draft = part.seq, piece.draft
        drafted = [*path, *draft.ids[:i]]
        row = self.rows(seq.tokens, drafted)
        token, probs = choose_token(step, seq, row, drafted, part.draft.parents is not None, piece.leaf)
        self.seen += 1
        same = draft.probs is None or (draft.probs[i].double() - probs).abs().max() < 1e-6
        if (
            draft.ids[i] != token
            or not same
            or (draft.probs is None) == (step.wants_probs and draft.proposal != "deterministic")
        ):
            self.wrong.append((seq.name, path, i, draft.ids[i], token))


def choose_token(
    step: DraftStep, seq: Any, row: Tensor, drafted: list[int], tree: bool, leaf: int
) -> tuple[int, Tensor]:
    """The token after ``drafted``, likeliest or drawn with the noise of its own position, and all probabilities."""
    sampling = seq.sampling
    if sampling.temperature == 0:
        return int(row.argmax()), torch.nn.functional.one_hot(row.argmax(), len(row)).double()
    ids, z = support(adjust_row(row, sampling, [*seq.tokens, *drafted], seq.prompt_len), sampling)
    noise = step.noise(seq, len(drafted), (1 << 15) + leaf if tree else 0)
    token = int(ids[(z.double() + noise[ids]).argmax()])
    return token, torch.zeros(len(row), dtype=torch.float64).scatter_(0, ids, torch.softmax(z, -1).double())


def ran(run: Run, asked: list[Request]) -> dict[str, list[int]]:
    """{name: prompt and output}, of requests that run together."""
    return {r.name: [*r.prompt, *text.result.tokens] for r, text in zip(asked, run.generate(asked), strict=True)}
