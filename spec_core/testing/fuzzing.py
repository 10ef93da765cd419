"""Losslessness under misbehaviour: runs full of fuzzers, every text held against plain decoding."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from spec_core.request import Request, Result
from spec_core.run import Run
from spec_core.target import Target
from spec_core.testing.fuzzer import Fuzzer

BATCH = 8
"""Most sequences that run at once."""


@attrs.define
class Report:
    """What a campaign did. faults: {kind: times}; drafted and accepted: tokens."""

    rounds: int = 0
    steps: int = 0
    sequences: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    switched_off: int = 0
    faults: Counter[str] = attrs.field(factory=Counter)


def plainly(target: Target, requests: Iterable[Request]) -> dict[str, Result]:
    """{name: result} of every request alone, without a method: the reference."""
    return {request.name: Run(target).generate(request).result for request in requests}


def campaign(
    target: Target,
    requests: list[Request],
    steps: int,
    seed: int = 0,
    rollback: Callable[[random.Random], Any] = lambda rng: None,
    fault: float = 0.01,
) -> Report:
    """Rounds of fresh runs until so many steps were taken; every text must equal plain decoding's.

    requests: named; each round draws 1 to 16 of them. rollback: the owner of recurrent state for a round.
    Raises AssertionError with what reproduces the round.
    """
    known = plainly(target, requests)
    report = Report()
    while report.steps < steps:
        rng = random.Random(f"{seed} {report.rounds}")
        one_round(target, requests, known, rollback(rng), rng, fault, report)
        report.rounds += 1
    return report


def one_round(
    target: Target,
    requests: list[Request],
    known: dict[str, Result],
    rollback: Any,
    rng: random.Random,
    fault: float,
    report: Report,
) -> None:
    """One run: one to four fuzzers, a batch of 1 to 8, sequences that join while others run."""
    texts = {request.name: [*request.prompt, *known[request.name].tokens] for request in requests}
    fuzzers = [Fuzzer(texts, seed=rng.randrange(2**32), fault=fault) for _ in range(rng.randint(1, 4))]
    named = [(f"fuzzer-{i}", fuzzer) for i, fuzzer in enumerate(fuzzers)]
    run = Run(target, named, rollback=rollback, on_error="isolate", **settings(rng))
    waiting = [rng.choice(requests) for _ in range(rng.randint(1, 2 * BATCH))]
    running = {}
    while waiting or run.busy:
        while waiting and (not run.busy or rng.random() < 0.5):
            request = waiting.pop()
            running[run.submit(request)] = request.name
        run.step()
        report.steps += 1
    for seq, name in running.items():
        result = run.take(seq)
        where = f"round {report.rounds}, sequence {name}"
        assert result.tokens == known[name].tokens, f"{where}: {result.tokens} is not plain {known[name].tokens}"
        assert result.text == known[name].text, f"{where}: {result.text!r} is not plain {known[name].text!r}"
        report.sequences += 1
        report.tokens += len(result.tokens)
    note(report, run, fuzzers)


def note(report: Report, run: Run, fuzzers: list[Fuzzer]) -> None:
    """Add a round; every fault must have switched its fuzzer off, and nothing else may have."""
    faults = sum((fuzzer.did for fuzzer in fuzzers), Counter())
    switched_off = run.stats.switched_off
    assert len(switched_off) == sum(faults.values()), f"round {report.rounds}: {faults} switched off {switched_off}"
    passed = [why for why in switched_off.values() if "was let pass" in why]
    assert not passed, f"round {report.rounds}: {passed}"
    report.faults += faults
    report.switched_off += len(switched_off)
    report.drafted += run.stats.report()["drafted"]
    report.accepted += run.stats.report()["accepted"]


def settings(rng: random.Random) -> dict[str, Any]:
    """Settings of a run that change how it gets there, never what it says."""
    return {
        "slots": rng.randint(1, BATCH),
        "draft_max": rng.choice([1, 2, 4, 8]),
        "chunk": rng.choice([1, 3, 8, 64]),
        "rows_max": rng.choice([12, 40, 256]),
        "nodes_max": rng.choice([3, 8, 16]),
        "reuse": rng.random() < 0.7,
    }
