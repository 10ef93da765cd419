"""Run every contender on every prompt, interleaved, each counted in the same way.

Decode time begins after the step that emits a prompt's first token, so prefill is apart; both sides count the tokens
the loop emitted. Contenders take turns on each batch of prompts, in an order that rotates, after a warm-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import attrs

from spec_compare.prompts import Prompt
from spec_core.request import Request
from spec_core.run import Run
from spec_core.sampling import Sampling
from spec_core.sequence import Sequence
from spec_core.step import Step


@attrs.frozen(eq=False)
class Contender:
    """What is compared: a name and how to make a run of it, cold, for every measurement."""

    name: str
    run: Callable[[], Run]


@attrs.define
class Record:
    """One prompt under one contender, once. steps: [(depth drafted, accepted, emitted)] of the generation phase."""

    contender: str
    prompt: str
    family: str
    repeat: int
    seed: int
    tokens: list[int]
    finish: str
    decode_tokens: int
    decode_seconds: float
    first_seconds: float
    steps: list[tuple[int, int, int]]
    report: dict[str, Any]


@attrs.define(eq=False)
class Watch:
    """Collects steps of the sequences of one run."""

    steps: dict[Sequence, list[tuple[int, int, int]]] = attrs.field(factory=dict)
    first: dict[Sequence, float] = attrs.field(factory=dict)
    last: dict[Sequence, float] = attrs.field(factory=dict)

    def look(self, step: Step) -> None:
        now = perf_counter()
        for part in step.parts:
            if not part.emitted:
                continue
            if part.seq not in self.first:
                self.first[part.seq] = now
                self.steps[part.seq] = []
            else:
                depth = max(part.draft.depths) if part.draft else 0
                self.steps[part.seq].append((depth, min(len(part.raw.path), len(part.emitted)), len(part.emitted)))
            self.last[part.seq] = now


def measure(
    contenders: list[Contender],
    prompts: list[Prompt],
    n: int,
    sampling: Sampling,
    seed: int,
    repeats: int,
    batch: int,
    progress: Callable[[int, int], None],
) -> Iterator[Record]:
    """Records of all contenders; the first contender's first batch runs once beforehand, unmeasured."""
    groups = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    for contender in contenders:
        list(once(contender, groups[0], min(n, 16), sampling, seed, -1))
    total, done = len(groups) * repeats * len(contenders), 0
    for repeat in range(repeats):
        for g, group in enumerate(groups):
            shift = (g + repeat) % len(contenders)
            for contender in contenders[shift:] + contenders[:shift]:
                yield from once(contender, group, n, sampling, seed, repeat)
                done += 1
                progress(done, total)


def once(
    contender: Contender, group: list[Prompt], n: int, sampling: Sampling, seed: int, repeat: int
) -> Iterator[Record]:
    run, watch = contender.run(), Watch()
    run.observe(watch.look)
    began = perf_counter()
    seqs = [run.submit(Request(p.text, n=n, sampling=sampling, seed=p.seed(seed), name=p.id)) for p in group]
    for _ in run:
        pass
    report = run.stats.report()
    for prompt, seq in zip(group, seqs, strict=True):
        result = run.take(seq)
        first, last = watch.first.get(seq, began), watch.last.get(seq, began)
        yield Record(
            contender=contender.name,
            prompt=prompt.id,
            family=prompt.family,
            repeat=repeat,
            seed=result.seed,
            tokens=result.tokens,
            finish=result.finish_reason,
            decode_tokens=max(0, len(result.tokens) - 1),
            decode_seconds=last - first,
            first_seconds=first - began,
            steps=watch.steps.get(seq, []),
            report=report if len(group) == 1 or seq is seqs[0] else {},
        )
