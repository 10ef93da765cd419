"""Random requests with every method on models with recurrent layers: texts are plain decoding's of their seeds, and
what a slot holds after every step is a fresh forward's.

Every strategy of rollback, chains and trees, prompts that come again after another, requests that are cancelled, texts
that end with the context. Seconds for the suite; for long in tests/campaigns/states.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from spec_core import Request, Result, Run
from tests.methods.block_fuzz import Report, count_drafts, finish, requests
from tests.methods.heads import method as head
from tests.methods.heads import tiny
from tests.support.small_models import tiny_gguf
from tests.targets.gate import assert_fresh, fresh_memory

STRATEGIES = ("snapshot", "replay", "checkpoint")
SCANNED = ("granitehybrid", "falcon-h1", "nemotron_h_moe")
"""The targets with Mamba-2."""
NEWER = ("deepseek2", "olmo-hybrid", "lfm3", "muse_glimmer", "laguna", "glm5-next")
"""Targets that run with a few of the methods alone: latents that rotate, gates, norms after branches, residual
streams and an index; not all have a recurrent state."""
TARGETS = ("kimi-linear", "hybrid", *SCANNED, *NEWER)
LOOKUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "ngram": ("ngram", {"p_min": 0.0, "n_min": 1}),
    "suffix": ("suffix", {"p_min": 0.0, "draft_max": 5}),
    "suffix-tree": ("suffix", {"p_min": 0.0, "draft_max": 5, "width": 3}),
    "recycling": ("recycling", {"p_min": 0.0, "draft_max": 3, "width": 1}),
    "recycling-tree": ("recycling", {"p_min": 0.0, "draft_max": 3, "nodes_max": 7}),
    "draft-model": ("draft-model", {"file": "", "p_min": 0.0, "draft_max": 3}),
    "mtp": ("mtp", {"p_min": 0.0, "draft_max": 3}),
}
"""``mtp`` runs where a target has a layer that predicts further."""
HEADS = ("eagle3", "eagle3-tree", "dflash", "dflash-tree", "dspark", "dspark-tree", "dflash2", "dflash2-tree")
METHODS = (*LOOKUPS, *HEADS)
PREDICTING = ("hybrid", "nemotron_h_moe", "deepseek2")
FEW = ("suffix-tree", "draft-model", "mtp", "eagle3-tree")
CASES = [
    (name, of)
    for name in METHODS
    for of in TARGETS
    if (name != "mtp" or of in PREDICTING) and (of not in NEWER or name in FEW)
]
"""Methods and the targets with which they run."""


def fuzz(name: str, of: str, seed: int, count: int, report: Report) -> None:
    """Add a run of ``count`` requests with a method to a report, with checkpoints at random distances.

    Raises AssertionError for a state that differs.
    """
    rng = np.random.default_rng([seed, METHODS.index(name), TARGETS.index(of)])
    target, strategy = tiny(of), str(rng.choice(STRATEGIES))
    recurrent = bool(target.config.recurrent)
    owner = ("gdn-rollback", {"strategy": strategy, "n": int(rng.choice([1, 4, 16]))}) if recurrent else None
    options = {"max_sequences": int(rng.integers(1, 5)), "prefill_chunk": int(rng.choice([7, 64, 512]))}
    options["cache_tokens"] = 4096
    asked = list(requests(rng, target.info, list(range(6)), -(-count // 2)))
    target.every, before = int(rng.choice([2, 8, 128])), target.every
    run = Run(target, [_method_of(name, of)], **options | ({"rollback": owner} if owner else {}))
    run.observe(lambda step: count_drafts(report.counts, step))
    results = finish(rng, run, asked, lambda: _check(run, report))
    turns = list(_next_turns(asked, results, target.info.context, count - len(asked)))
    asked, results = [*asked, *turns], [*results, *finish(rng, run, turns, lambda: _check(run, report))]
    report.counts["reused"] += sum(result.reused for result in results)
    run.close()
    plain = Run(target, max_sequences=1)
    for request, result in zip(asked, results, strict=True):
        label = f"{name} {of} {strategy} seed {seed}"
        report.compare(label, target.info.context, request, result, plain.generate(request).result)
    plain.close()
    target.every = before
    fresh_memory.cache_clear()


def _next_turns(asked: list[Request], results: list[Result], context: int, count: int) -> Iterator[Request]:
    """At most ``count`` requests whose prompts are earlier texts with a longer end, or earlier prompts again where the
    text fills the context.
    """
    for request, result in zip(asked[:count], results, strict=False):
        longer = [*request.prompt, *result.tokens, 3, 4, 5]
        prompt = longer if len(longer) < context else request.prompt
        yield attrs.evolve(request, prompt=prompt, name=f"{request.name} again")


def _method_of(name: str, of: str) -> tuple[str, dict[str, Any]]:
    """A method and its settings."""
    if name in HEADS:
        return head(name, of)
    kind, settings = LOOKUPS[name]
    return kind, settings | ({"file": str(tiny_gguf(1))} if "file" in settings else {})


def _check(run: Run, report: Report) -> None:
    """Hold the state of every running sequence against a fresh forward."""
    for seq in run.running:
        if seq.slot is not None and seq.slot.state is not None and seq.evaluated:
            assert_fresh(run.target, seq)
            report.counts["states"] += 1
