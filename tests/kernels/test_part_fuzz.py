"""Random requests whose drafts come from partial forwards of every kind: texts are plain, and evaluated rows stay."""

from __future__ import annotations

import random

import pytest
import torch

from spec_core import Compat, Draft, Needs, Run, Sampling, hookimpl, load
from spec_core.toolkit import LowRank, Overlay, partial_forward
from tests.support.assistants import tiny_gemma4

REQUESTS = 24
"""Requests of each test; 1,000 were run once."""
FILES = {
    "native": ("zoo:pico", {}),
    "q8 cache": ("zoo:pico", {"cache_dtype": "q8"}),
    "reference": ("zoo:pico", {"kernels": "reference"}),
    "shared caches": (None, {"device": "cpu", "context": 128}),
}


class Restless:
    """Drafts chains and trees from random tokens after a partial forward drawn at random.

    checked: number of forwards after which evaluated rows were compared.
    """

    def __init__(self, seed: int) -> None:
        self.draws, self.checked = random.Random(seed), 0

    @hookimpl
    def compat(self, target) -> Compat:
        return Compat(needs=Needs(partial=True, trees=True), drafts={"deterministic"}, load=self.load)

    def load(self, target) -> None:
        layers, noise = range(target.info.layers), torch.Generator().manual_seed(1)
        n, k = target.tensor("blk.1.attn_output.weight").shape
        pair = LowRank(torch.randn(3, k, generator=noise), torch.randn(n, 3, generator=noise))
        tensors = {"blk.1.attn_output.weight": pair}
        self.parts = [
            partial_forward(target, layers[:3]),
            partial_forward(target, layers, window=5),
            partial_forward(target, layers, overlay=Overlay(tensors, both_ways=True)),
            partial_forward(target, layers, overlay=Overlay(tensors, plain_rows=1)),
        ]

    @hookimpl
    def draft(self, step) -> None:
        going = [(seq, budget) for seq, budget in step.undrafted if budget]
        if not going:
            return
        before = [self.read(step.target, seq) for seq, _ in going]
        length = self.draws.choice([1, 3, 20])
        tokens = [self.draws.randrange(1, step.target.info.vocab) for _ in range(length)]
        rows = [(seq, seq.evaluated, [*seq.tokens[seq.evaluated :], *tokens]) for seq, _ in going]
        logits = self.draws.choice(self.parts).forward_rows(rows)
        for (seq, budget), one, old in zip(going, logits, before, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(self.read(step.target, seq), old, strict=True))
            self.checked += bool(old)
            ids = [*one[-1 - length].topk(2).indices.tolist(), *one.argmax(1)[-length:].tolist()]
            count = min(len(ids), budget, self.draws.choice([1, 4]))
            parents = [self.draws.randrange(-1, i) if i else -1 for i in range(count)]
            step.propose(seq, self.draws.choice([Draft(ids[:count]), tree(ids[:count], parents)]))

    def read(self, target, seq):
        """Copies of the evaluated rows of two blocks."""
        if not seq.evaluated:
            return []
        held = target.cache_reader.rows(seq, seq.evaluated)
        return [part.clone() for block in (0, target.info.layers - 1) for part in held.read(block)]


def tree(ids, parents):
    """A draft whose siblings differ."""
    seen = {(parent, token) for parent, token in zip(parents, ids, strict=True)}
    return Draft(ids, parents=parents) if len(seen) == len(ids) else Draft(ids)


def texts(target, methods, seed):
    """Tokens of the requests that were not cancelled, by number."""
    draws = random.Random(seed)
    run = Run(target, methods, max_sequences=draws.choice([1, 3, 8]))
    prefix = [draws.randrange(1, target.info.vocab) for _ in range(20)]
    waiting, cancelled = {}, set()
    for i in range(REQUESTS):
        prompt = [
            *prefix[: draws.choice([0, 12, 20])],
            *(draws.randrange(1, target.info.vocab) for _ in range(draws.randint(1, 9))),
        ]
        sampling = Sampling(temperature=draws.choice([0.0, 0.8]))
        waiting[i] = run.submit(prompt, max_tokens=draws.randint(1, 20), sampling=sampling, seed=i)
        if draws.random() < 0.1:
            cancelled.add(i)
    while run.busy:
        run.step()
        for i in list(cancelled):
            if waiting[i].finish is None and len(waiting[i].tokens) > waiting[i].prompt_len + 1:
                run.cancel(waiting[i])
    return {i: run.take(seq).tokens for i, seq in waiting.items() if i not in cancelled}


@pytest.mark.parametrize("kind", FILES)
def test_texts_of_random_requests_are_plain(kind):
    file, options = FILES[kind]
    target, method = load(file or tiny_gemma4(), threads=1, **options), Restless(7)
    drafted = texts(target, [method], seed=3)

    assert drafted == texts(target, [], seed=3)
    assert method.checked > REQUESTS
