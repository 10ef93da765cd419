"""Fuzz of partial forwards: random rows through random blocks in every draft, every text held against plain decoding.

    python tests/campaigns/partial_forwards.py                 # 1,000 requests over five targets
    python tests/campaigns/partial_forwards.py --requests 60

Targets: dense models with caches of three kinds, natively and in the reference, and one whose blocks share caches.
Requests of a run share prefixes, so that rows are reused and copied while others draft; some are cancelled. Drafts are
chains and trees. The keys and values of evaluated rows are compared before and after partial forwards, bit for bit.
Prints what was done; raises at the first difference, with the seed of its round.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import torch
from torch import Tensor

from spec_core import Compat, Draft, DraftStep, Needs, Request, Run, Sampling, Sequence, Target, hookimpl, load
from spec_core.toolkit import LowRank, Overlay, PartialForward, cache_reader, partial_forward
from tests.support.assistants import tiny_gemma4

TARGETS: dict[str, Callable[[], Target]] = {
    "native": lambda: load("zoo:pico", threads=1),
    "float16": lambda: load("zoo:pico", threads=1, cache_dtype="float16"),
    "q8": lambda: load("zoo:pico", threads=1, cache_dtype="q8"),
    "reference": lambda: load("zoo:pico", threads=1, kernels="reference"),
    "shared": lambda: load(tiny_gemma4(), device="cpu", context=96),
}
ROUND = 10
"""Requests of a run."""


@attrs.define(eq=False)
class PartialFuzzer:
    """Runs random rows through random parts of the target, and drafts chains and trees of what they predict.

    texts: {request: its prompt and its plain text}, of which some drafts are the right continuation.
    """

    texts: dict[str, list[int]]
    rng: random.Random
    did: Counter[str]
    target: Target = attrs.field(default=None, init=False)
    parts: list[PartialForward] = attrs.field(factory=list, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=Needs(partial=True, trees=True), load=self.load)

    def load(self, target: Target) -> None:
        self.target = target
        layers, chosen = target.info.layers, self.rng
        while len(self.parts) < 4:
            blocks = range(chosen.randint(1, layers)) if chosen.random() < 0.5 else chosen.sample(range(layers), 3)
            window = chosen.choice([0, 1, 5, 20])
            try:
                part = partial_forward(target, blocks, window, self.overlay(), chosen.choice([0, 3]) if window else 0)
            except ValueError:
                continue  # a block whose keys another one reads was left out
            self.parts.append(part)

    def overlay(self) -> Overlay | None:
        """Random low-rank weights for the queries of block 0, or none."""
        if self.rng.random() < 0.5 or not hasattr(self.target, "has_tensor"):
            return None
        name = "blk.0.attn_q.weight"
        rows, columns = self.target.tensor(name).shape
        pair = LowRank(torch.ones(2, columns) * 0.01, torch.ones(rows, 2) * 0.01)
        return Overlay({name: pair}, plain_rows=self.rng.randint(0, 2), both_ways=self.rng.random() < 0.5)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        offers = list(step.undrafted)
        seqs = [seq for seq, _ in offers]
        before = self.evaluated_rows(seqs) if self.rng.random() < 0.3 else None
        rows = {seq: self.predict(seq) for seq in seqs}
        if len(seqs) > 1:
            self.predict_together(seqs)
        if before is not None:
            self.did["compared"] += len(before)
            assert all(map(torch.equal, before, self.evaluated_rows(seqs))), "an evaluated row has changed"
        for seq, budget in offers:
            if self.rng.random() < 0.8:
                step.propose(seq, self.make_draft(seq, rows[seq], budget, step.nodes(seq)))

    def predict(self, seq: Sequence) -> Tensor:
        """Logits of a row of a random part, after rows of random tokens."""
        for _ in range(self.rng.randint(1, 3)):
            pending = seq.tokens[seq.evaluated :]
            ahead = self.rng.choices(range(self.target.info.vocab), k=self.rng.randint(0, 5))
            last = self.rng.choice(self.parts).forward_rows([(seq, seq.evaluated, [*pending, *ahead])])[0][-1].clone()
            self.did["rows"] += len(pending) + len(ahead)
        return last

    def predict_together(self, seqs: list[Sequence]) -> None:
        self.rng.choice(self.parts).forward([(seq, seq.evaluated, seq.tokens[seq.evaluated :]) for seq in seqs])
        self.did["together"] += len(seqs)

    def make_draft(self, seq: Sequence, row: Tensor, budget: int, nodes: int) -> Draft:
        right = self.texts[seq.name][len(seq.tokens) :][: self.rng.randint(1, budget)]
        if right and self.rng.random() < 0.5:
            return Draft([*right, 5][:budget])
        likely = row.topk(min(3, nodes)).indices.tolist()
        if len(likely) < 2 or self.rng.random() < 0.5:
            return Draft(self.rng.choices(likely, k=self.rng.randint(1, budget)))
        return Draft(likely, parents=[-1] * len(likely))

    def evaluated_rows(self, seqs: Iterable[Sequence]) -> list[Tensor]:
        """Copies of the keys and values of all evaluated rows."""
        reader, tensors = cache_reader(self.target), []
        for seq in seqs:
            rows = reader.rows(seq, seq.evaluated)
            for block in range(self.target.info.layers):
                if reader.heads(block) is not None:
                    tensors += [tensor.clone() for tensor in rows.read(block)]
        return tensors


def make_requests(target: Target, rng: random.Random) -> list[Request]:
    """Requests of a run: their prompts begin alike."""
    vocab = min(target.info.vocab, 200)
    texts = [rng.choices(range(3, vocab), k=40) for _ in range(2)]
    requests = []
    for seed in range(ROUND):
        prompt = [*rng.choice(texts)[: rng.randint(1, 40)], *rng.choices(range(3, vocab), k=rng.randint(0, 3))]
        sampling = Sampling(temperature=rng.choice([0.0, 0.8]))
        requests.append(
            Request(
                prompt,
                max_tokens=rng.randint(1, 16),
                sampling=sampling,
                seed=seed,
                ignore_eos=rng.random() < 0.7,
                name=str(seed),
            )
        )
    return requests


def play_round(target: Target, seed: int, did: Counter[str]) -> None:
    """Run some requests with partial forwards. Raises AssertionError for a text that is not plain decoding's."""
    rng = random.Random(seed)
    requests = make_requests(target, rng)
    plain = {request.name: Run(target).generate(request).result.tokens for request in requests}
    texts = {request.name: [*request.prompt, *plain[request.name]] for request in requests}
    settings: dict[str, Any] = {
        "max_sequences": rng.choice([1, 3, 8]),
        "prefill_chunk": rng.choice([3, 64]),
        "max_batched_tokens": rng.choice([12, 256]),
        "draft_max": rng.randint(1, 6),
    }
    with Run(target, [PartialFuzzer(texts, rng, did)], **settings) as run:
        seqs = [run.submit(request) for request in requests]
        cancelled = {seq for seq in seqs if rng.random() < 0.1}
        steps = 0
        while run.busy:
            run.step()
            steps += 1
            for seq in [seq for seq in cancelled if steps > 4 and seq.finish is None]:
                run.cancel(seq)
        results = [run.take(seq) for seq in seqs]
        did["reused"] += sum(seq.reused > 0 for seq in seqs)
    for request, seq, result in zip(requests, seqs, results, strict=True):
        whole = plain[request.name]
        expected = whole[: len(result.tokens)] if seq in cancelled else whole
        assert result.tokens == expected, f"round {seed}: {result.tokens} is not {expected}"
        did["requests"] += 1
        did["drafted"] += result.stats["drafted"]
        did["accepted"] += result.stats["accepted"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, make in TARGETS.items():
        target, did = make(), Counter[str]()
        for number in range(-(-options.requests // (len(TARGETS) * ROUND))):
            play_round(target, options.seed + number, did)
        print(f"{name}: {did['requests']} requests, all plain: {dict(did)}", flush=True)


if __name__ == "__main__":
    main()
