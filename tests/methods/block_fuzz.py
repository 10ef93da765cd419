"""Random requests with block drafters and assistants on random models: every text is plain decoding's of its seed.

Chains and trees of every kind, windows shorter than drafts, temperatures and penalties, batches, requests that are
cancelled, prompts that come again after another, prompts in pieces, and texts that end with the context. Seconds for
the suite; for long in tests/campaigns/block_drafters.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
from spec_kernels.native import CACHES

from spec_core import Request, Result, Run, Sampling, Sequence, Target, TargetInfo, load
from tests.methods.heads import method, tiny
from tests.support.assistants import tiny_assistant, tiny_gemma4

HEADS = ("dflash", "dspark", "dspark-bonus", "dflash2", "dspine", "lilicorr", "dflash-gated")
SHAPES = {"chain": {}, "tree": {"width": (2, 5), "nodes_max": (8, 33)}}
CONTEXT = {"dense": 256, "hybrid": 128, "lfm2": 128}
ASSISTED = ("assistant", "assistant-keyed")
ROWS = (None, 120, LIKELY := 6)
"""Rows of logits of a head; one of few rows drafts the tokens that a biased request chooses from, so that some drafts
are accepted."""


def settings(rng: np.random.Generator, name: str, of: str, tree: bool) -> tuple[str, dict[str, Any]]:
    """A random head of this name and random settings."""
    kind, fixed = method(name, of, ROWS[int(rng.integers(len(ROWS)))])
    limits = {key: int(rng.integers(*ends)) for key, ends in SHAPES["tree" if tree else "chain"].items()}
    own = {"p_min": float(rng.choice([0.0, 0.0, 0.02, 0.3])), "draft_max": int(rng.integers(1, 6))}
    return kind, {**fixed, **own, **limits, "sample": str(rng.choice(["auto", "auto", "greedy"]))}


def sampling(rng: np.random.Generator, likely: list[int]) -> Sampling:
    """Greedy or not, often with cuts and penalties, often with some tokens alone."""
    some = lambda *values: float(rng.choice(values))
    bias = dict.fromkeys(likely, 25.0) if rng.random() < 0.6 else {}
    return Sampling(
        temperature=some(0.0, 0.7, 1.0, 1.5),
        top_k=int(rng.choice([0, 0, 20])),
        top_p=some(1.0, 1.0, 0.9),
        min_p=some(0.0, 0.0, 0.05),
        repetition_penalty=some(1.0, 1.0, 1.2),
        presence_penalty=some(0.0, 0.0, 0.6),
        frequency_penalty=some(0.0, 0.0, 0.3),
        logit_bias=bias,
    )


def likely_tokens(file: str) -> list[int]:
    """Some tokens that a head can draft."""
    d2t = load(file, weights=False).head.d2t
    return list(range(LIKELY)) if d2t is None else d2t[:LIKELY].tolist()


def requests(rng: np.random.Generator, info: TargetInfo, likely: list[int], count: int) -> Iterator[Request]:
    """Prompts A, B, A with a longer end, and so on; every eighth is near the end of the context."""
    vocab, earlier = info.vocab, [[1, 2]]
    for i in range(count):
        near = rng.random() < 0.12
        length = info.context - int(rng.integers(2, 20)) if near else int(rng.integers(1, 40))
        beginning = earlier[int(rng.integers(len(earlier)))][:length] if rng.random() < 0.5 else []
        prompt = [*beginning, *rng.integers(0, vocab, length - len(beginning)).tolist()]
        earlier.append(prompt)
        yield Request(
            prompt,
            max_tokens=info.context if near else int(rng.integers(1, 24)),
            seed=int(rng.integers(2**40)),
            sampling=sampling(rng, likely),
            ignore_eos=bool(rng.random() < 0.7),
            name=f"{i}",
        )


@attrs.define
class Report:
    """Counts, and descriptions of texts that are not plain decoding's."""

    counts: Counter[str] = attrs.field(factory=Counter)
    differing: list[str] = attrs.field(factory=list)

    def compare(self, label: str, context: int, request: Request, result: Result, plain: Result) -> None:
        """Hold a text against the plain one; a cancelled one is its beginning."""
        cancelled = result.finish_reason == "cancelled"
        expected = plain.tokens[: len(result.tokens)] if cancelled else plain.tokens
        if result.tokens != expected or (not cancelled and result.finish_reason != plain.finish_reason):
            self.differing.append(f"{label}, request {request.name}: {request}")
        self.counts.update(
            requests=1,
            tokens=len(result.tokens),
            cancelled=int(cancelled),
            context=int(len(request.prompt) + len(result.tokens) >= context),
            sampled=int(request.sampling.temperature > 0),
        )


def fuzz(name: str, of: str, tree: bool, seed: int, count: int, report: Report) -> None:
    """Add a run of ``count`` requests with a block drafter to a report."""
    rng = np.random.default_rng([seed, HEADS.index(name), tree, list(CONTEXT).index(of)])
    target, chosen = tiny(of), settings(rng, name, of, tree)
    label = f"{name} {of} {'tree' if tree else 'chain'} seed {seed} {chosen[1]}"
    compare_run(rng, label, target, chosen, requests(rng, target.info, likely_tokens(chosen[1]["file"]), count), report)


def fuzz_assistant(name: str, seed: int, count: int, report: Report) -> None:
    """Add a run of ``count`` requests with an assistant to a report."""
    rng, shared = np.random.default_rng([seed, ASSISTED.index(name)]), name == "assistant"
    own: dict[str, Any] = {"p_min": float(rng.choice([0.0, 0.02, 0.3])), "draft_max": int(rng.integers(1, 9))}
    own |= {"sample": str(rng.choice(["auto", "auto", "greedy"])), "position": str(rng.choice(["next", "last"]))}
    chosen = "assistant", {"file": str(tiny_assistant(shared, ordered=bool(rng.random() < 0.5))), **own}
    target = load(tiny_gemma4(shared), device="cpu", context=128, cache_dtype=str(rng.choice(CACHES)))
    compare_run(rng, f"{name} seed {seed} {own}", target, chosen, requests(rng, target.info, [3, 5], count), report)


def compare_run(
    rng: np.random.Generator, label: str, target: Target, chosen: Any, planned: Iterator[Request], report: Report
) -> None:
    """Add a run of these requests to a report."""
    asked = list(planned)
    options = {"max_sequences": int(rng.integers(1, 5)), "prefill_chunk": int(rng.choice([7, 64, 512]))}
    run = Run(target, [chosen], **options)
    run.observe(lambda step: count_drafts(report.counts, step))
    results = finish(rng, run, asked)
    run.close()
    plain = Run(target, max_sequences=1)
    for request, result in zip(asked, results, strict=True):
        report.compare(label, target.info.context, request, result, plain.generate(request).result)
    plain.close()


def finish(
    rng: np.random.Generator, run: Run, asked: list[Request], check: Callable[[], None] = lambda: None
) -> list[Result]:
    """Submit requests while others run, and cancel some of them. check: called after every step."""
    waiting, sequences = list(asked), []
    while waiting or run.busy:
        while waiting and (not run.busy or rng.random() < 0.4):
            sequences.append(run.submit(waiting.pop(0)))
        run.step()
        check()
        running: list[Sequence] = list(run.running)
        if running and rng.random() < 0.01:
            run.cancel(running[int(rng.integers(len(running)))])
    return [run.take(seq) for seq in sequences]


def count_drafts(counts: Counter[str], step: Any) -> None:
    for part in step.parts:
        if part.draft is not None:
            branches = part.draft.parents is not None and len({*part.draft.parents}) < len(part.draft.parents)
            counts.update(drafts=1, drafted=part.drafted, branching=int(branches))
            counts["accepted"] += len(part.full_verdict.path)
