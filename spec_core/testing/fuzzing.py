"""Losslessness with misbehaving plugins: runs full of fuzzers, every text compared with plain decoding."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.plan import DraftPlan, Limit
from spec_core.contract.request import Request, Result
from spec_core.contract.sequence import Sequence
from spec_core.contract.target import Target
from spec_core.contract.values import Compat
from spec_core.errors import PluginError
from spec_core.hookspecs import hookimpl
from spec_core.loop.run import Run
from spec_core.sampling.parameters import Sampling
from spec_core.testing.constraint import ToyConstraint
from spec_core.testing.fuzzer import Fuzzer

BATCH = 8
"""Max sequences that run at once."""
FAULTS = (0.002, 0.01, 0.05)
"""Probabilities of a fault, per hook and sequence: fuzzers that run for long, and fuzzers that fail at once."""


TEMPERATURES = (0.0, 0.4, 0.8, 1.2, 1.5)
SHARES = (0.05, 0.4, 0.9)
"""Shares of the vocabulary that a constraint allows."""


@attrs.define
class Report:
    """Results of a campaign. ended: sequences that an error ended; tokens: emitted; faults: {kind: count}."""

    rounds: int = 0
    steps: int = 0
    sequences: int = 0
    ended: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    faults: Counter[str] = attrs.field(factory=Counter)


def make_requests(prompts: Iterable[list[int]], target: Target, longest: int = 24, seed: int = 0) -> list[Request]:
    """A request for each prompt: temperatures from 0 to 1.5, lengths up to ``longest``.

    Some have a stop token or a constraint, and some a position that is given as the embedding of another token.
    """
    rng = random.Random(seed)
    constraints = make_constraints(len(prompts := list(prompts)), longest, seed)
    vocab, table = target.info.vocab, target.tensor("token_embd.weight")
    return [
        Request(
            prompt,
            max_tokens=rng.randint(1, longest),
            embeds={rng.randrange(len(prompt)): table[rng.randrange(vocab)]} if rng.random() < 0.2 else {},
            seed=rng.randrange(2**64),
            sampling=Sampling(temperature=rng.choice(TEMPERATURES)),
            stop_tokens={rng.randrange(vocab)} if rng.random() < 0.3 else (),
            constraint=constraints[i],
            name=f"{i}",
        )
        for i, prompt in enumerate(prompts)
    ]


def make_constraints(count: int, longest: int, seed: int) -> list[ToyConstraint | None]:
    """A constraint for some of the requests, from random numbers of their own."""
    rng = random.Random(f"constraints {seed}")
    constraints = [ToyConstraint(i, rng.choice(SHARES), rng.randint(1, 2 * longest)) for i in range(count)]
    return [constraint if rng.random() < 0.2 else None for constraint in constraints]


def plain_results(target: Target, requests: Iterable[Request]) -> dict[str, Result]:
    """{name: result} of every request alone, without a method: the reference."""
    return {request.name: Run(target).generate(request).result for request in requests}


def campaign(
    target: Target,
    prompts: Iterable[list[int]],
    steps: int,
    seed: int = 0,
    longest: int = 24,
    rollback: Callable[[random.Random], Any] = lambda rng: None,
    endings: tuple[type[Exception], ...] = (),
) -> Report:
    """Rounds of new runs until enough steps were taken; every text must equal plain decoding's.

    prompts: token ids; each round draws some, continued by up to ``longest`` tokens. rollback: the owner
    of recurrent state for a round. endings: errors that may end a sequence, if target or owner raise on purpose.
    Every fourth round raises at the first fault of a step and continues with the waiting sequences.
    Raises AssertionError with the round's number; equal arguments give equal rounds.
    """
    requests = make_requests(prompts, target, longest, seed)
    known = plain_results(target, requests)
    texts = {request.name: [*request.prompt, *known[request.name].tokens] for request in requests}
    report = Report()
    while report.steps < steps:
        rng = random.Random(f"{seed} {report.rounds}")
        on_error = "raise" if report.rounds % 4 == 3 else "isolate"
        Round(target, requests, texts, rollback(rng), rng, on_error, endings).play(known, report)
        report.rounds += 1
    return report


@attrs.define(eq=False)
class Limiter:
    """A controller, named last, that limits or forbids the drafts of some sequences."""

    rng: random.Random

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        allowed = dict.fromkeys(step.methods, Limit())
        limited = {
            part.seq.number: dict.fromkeys(step.methods, Limit(self.rng.randrange(part.budget + 1)))
            for part in step.parts
            if part.budget and self.rng.random() < 0.05
        }
        step.plan(DraftPlan(allowed, limited, steps=self.rng.choice((1, 1, 1, 3))))


class Round:
    """One run: two to four fuzzers, the last without faults, and a changing batch of 1 to 8 sequences."""

    def __init__(
        self,
        target: Target,
        requests: list[Request],
        texts: dict[str, list[int]],
        rollback: Any,
        rng: random.Random,
        on_error: str = "isolate",
        endings: tuple[type[Exception], ...] = (),
    ) -> None:
        self.rng, self.endings = rng, endings
        self.raised: list[PluginError] = []
        chances = [*rng.choices(FAULTS, k=rng.randint(1, 3)), 0.0]
        self.fuzzers = [Fuzzer(texts, seed=rng.randrange(2**32), fault=chance) for chance in chances]
        named: list[tuple[str, Any]] = [(f"fuzzer-{i}", fuzzer) for i, fuzzer in enumerate(self.fuzzers)]
        named.append(("limiter", Limiter(random.Random(rng.randrange(2**32)))))
        self.run = Run(target, named, rollback=rollback, on_error=on_error, **settings(rng))
        self.waiting = [rng.choice(requests) for _ in range(rng.randint(1, 2 * BATCH))]
        self.started: dict[Sequence, str] = {}

    def play(self, known: dict[str, Result], report: Report) -> None:
        """Run to the end and compare everything with the known results. Raises AssertionError."""
        while self.waiting or self.run.busy:
            self._join()
            if self.rng.random() < 0.01:
                self.run.cancel(self.rng.choice(list(self.started)))
            self._step()
            report.steps += 1
        for seq, name in self.started.items():
            report.tokens += self._check(seq, name, known[name], report.rounds)
        self._count(report)

    def _step(self) -> None:
        try:
            self.run.step()
        except PluginError as error:
            if self.run.settings.on_error == "isolate":
                raise
            self.raised.append(error)

    def _join(self) -> None:
        """Submit some requests at once and some during the run, with all fuzzers, some of them, or none."""
        while self.waiting and (not self.run.busy or self.rng.random() < 0.5):
            request = self.waiting.pop()
            some = tuple(name for name in sorted(self.run.drafters) if self.rng.random() < 0.5)
            methods = some if self.rng.random() < 0.2 else None
            seq = self.run.submit(request, methods=methods, draft_max=self.rng.choice([None] * 6 + [0, 3]))
            self.started[seq] = request.name

    def _check(self, seq: Sequence, name: str, plain: Result, number: int) -> int:
        """Compare tokens and text; if the sequence was ended early, its prefix. Returns the number of tokens."""
        result = self.run.results.pop(seq)
        tokens, text = plain.tokens, plain.text
        where = f"round {number}, sequence {name}, {result.finish_reason}"
        if result.finish_reason in ("cancelled", "error"):
            tokens, text = tokens[: len(result.tokens)], text[: len(result.text)]
            cause = getattr(seq.error, "__cause__", None) or seq.error
            expected = cause is None or isinstance(cause, self.endings) or seq.error in self.raised
            assert expected, f"{where}: {cause!r}"
        assert result.tokens == tokens, f"{where}: {result.tokens} differs from plain decoding's {tokens}"
        assert result.text == text, f"{where}: {result.text!r} differs from plain decoding's {text!r}"
        return len(tokens)

    def _count(self, report: Report) -> None:
        """Count faults. Every fault must have switched its fuzzer off, or ended its step; nothing else may have."""
        faults: Counter[str] = sum((fuzzer.did for fuzzer in self.fuzzers), Counter())
        stats = self.run.stats.report()
        raised = [error.reason for error in self.raised if not isinstance(error.__cause__, self.endings)]
        reasons = [*stats["switched_off"].values(), *raised]
        # Only the first fault of a step is raised: more may have happened than were seen.
        all_seen = len(reasons) == faults.total() or (self.raised and len(reasons) < faults.total())
        assert all_seen, f"round {report.rounds}: {dict(faults)}, seen {reasons}"
        passed = [why for why in reasons if "was not refused" in why]
        assert not passed, f"round {report.rounds}: {passed}"
        report.faults += faults
        report.sequences += len(self.started)
        report.ended += sum(seq.finish == "error" for seq in self.started)
        report.drafted += stats["drafted"]
        report.accepted += stats["accepted"]


def settings(rng: random.Random) -> dict[str, Any]:
    """Settings of a run that change its steps, never its text."""
    return {
        "max_sequences": rng.randint(1, BATCH),
        "draft_max": rng.choice([1, 2, 4, 8]),
        "prefill_chunk": rng.choice([1, 3, 8, 64]),
        "max_batched_tokens": rng.choice([12, 40, 256]),
        "nodes_max": rng.choice([3, 8, 16]),
        "reuse": rng.random() < 0.7,
    }
