"""A plugin that makes random valid calls in every hook, and sometimes invalid ones. Seeded."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from time import sleep
from typing import Any, NoReturn

import attrs
import torch

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.kinds import PROPOSALS
from spec_core.contract.plan import DraftPlan
from spec_core.contract.rows import Rows
from spec_core.contract.sequence import Sequence
from spec_core.contract.target import Target
from spec_core.contract.values import Compat, Draft, Needs, Verdict
from spec_core.contract.verified_step import AcceptStep, RollbackStep
from spec_core.hookspecs import hookimpl

ERRORS = (ValueError, TypeError, KeyError, RuntimeError, MemoryError, AssertionError, RecursionError, StopIteration)
RIGHT = 0.6
"""Probability that a drafted token is the right one, if the text is known."""


class Unprintable(Exception):
    """An error whose message cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


@attrs.define(eq=False)
class Fuzzer:
    """Drafts random chains, trees or nothing, reads noise, limits, waits; with probability ``fault`` it misbehaves.

    text: {sequence name: its tokens, prompt and output}, used to draft some right tokens.
    fault: probability per hook and per sequence, five times as high for drafts. delay: max wait in a hook, in seconds.
    only: the only fault that it makes; None means any. did: the faults that it made, with counts.
    """

    text: Mapping[str, list[int]] = attrs.field(factory=dict, repr=False)
    seed: int = 0
    fault: float = 0.01
    delay: float = 0.0
    only: str = ""
    did: Counter[str] = attrs.field(factory=Counter, init=False)
    vocab: int = attrs.field(default=0, init=False)
    trees: bool = attrs.field(default=False, init=False)
    rng: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        self.vocab, self.trees = target.info.vocab, target.info.trees
        return Compat(needs=Needs(trees=self.trees), drafts=PROPOSALS)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        self._misbehave(ANYWHERE, step, None)
        for seq, budget in step.undrafted:
            self._misbehave(DRAFTING, step, seq, often=5)
            if self._chance(0.8):
                step.propose(seq, self._draft(step, seq, budget))

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        self._misbehave(ANYWHERE, step, None)
        for seq in step.undecided:
            self._misbehave(DECIDING, step, seq)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        self._misbehave(ANYWHERE, step, None)
        for seq in step.verdicts:
            self._misbehave(AFTERWARDS, step, seq)

    @hookimpl
    def process(self, rows: Rows) -> None:
        self._misbehave(ANYWHERE, rows.step, None)
        for seq, _ in rows.by_sequence():
            self._misbehave(AFTERWARDS, rows.step, seq)

    def _misbehave(self, faults: Mapping[str, Fault], step: Any, seq: Sequence | None, often: int = 1) -> None:
        """Wait a little, or make one of these faults; a fault must end this hook with an error."""
        if self.delay and self._chance(0.1):
            sleep(self.rng.random() * self.delay)
        kinds = sorted(faults) if not self.only else [self.only] * (self.only in faults)
        if kinds and self._chance(self.fault * often):
            name = self.rng.choice(kinds)
            self.did[name] += 1
            faults[name](self, step, seq)
            raise AssertionError(f"{name} was not refused in {step.phase}")

    def _chance(self, p: float) -> bool:
        return self.rng.random() < p

    # drafts

    def _draft(self, step: DraftStep, seq: Sequence, budget: int) -> Draft:
        nodes = step.nodes(seq) if self.trees else budget
        parents = self._tree(self.rng.randint(1, min(nodes, 12)), budget) if self.trees and self._chance(0.5) else None
        count = len(parents) if parents else self.rng.randint(1, budget)
        depths = Draft([0] * count, parents=parents).depths
        ids = [self._token(step, seq, depth - 1) for depth in depths]
        repeats = parents is not None and len(set(zip(parents, ids, strict=True))) < count
        proposal = self.rng.choice(sorted(PROPOSALS - {"deterministic"} if repeats else PROPOSALS))
        probs = self._probs(ids) if proposal == "sampled" else None
        confidence = [self.rng.random() for _ in ids] if self._chance(0.3) else None
        return Draft(ids, proposal=proposal, probs=probs, parents=parents, confidence=confidence)

    def _tree(self, nodes: int, budget: int) -> list[int]:
        """Random parents of a tree, no deeper than the budget."""
        parents: list[int] = []
        depths: list[int] = []
        for i in range(nodes):
            parent = self.rng.choice([-1, *(j for j in range(i) if depths[j] < budget)])
            parents.append(parent)
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return parents

    def _token(self, step: DraftStep, seq: Sequence, ahead: int) -> int:
        known = self.text.get(seq.name, ())
        at = len(seq.tokens) + ahead
        if at < len(known) and self._chance(RIGHT):
            return known[at]
        if self._chance(0.1):
            return int(step.noise(seq, ahead).argmax())
        return self.rng.randrange(self.vocab)

    def _probs(self, ids: list[int]) -> torch.Tensor:
        """[K, V] random distributions that these tokens could have been drawn from."""
        probs = torch.full((len(ids), self.vocab), 0.5 / self.vocab)
        probs[range(len(ids)), ids] += 0.5
        return probs


Fault = Callable[[Any, Any, Any], object]


def _raise(fuzzer: Fuzzer, step: Any, seq: Sequence | None) -> NoReturn:
    raise fuzzer.rng.choice([*ERRORS, Unprintable])("fuzzed")


def _proposes(make: Callable[[Fuzzer], Any]) -> Fault:
    return lambda fuzzer, step, seq: step.propose(seq, make(fuzzer))


def _decides(make: Callable[[Fuzzer], Any]) -> Fault:
    return lambda fuzzer, step, seq: step.decide(seq, make(fuzzer))


def _late(fuzzer: Fuzzer, step: Any, seq: Sequence | None) -> None:
    sleep(fuzzer.delay)
    _raise(fuzzer, step, seq)


def _twice(fuzzer: Fuzzer, step: DraftStep, seq: Sequence) -> None:
    for _ in range(2):
        step.propose(seq, Draft([0]))


def _poisoned_draft(fuzzer: Fuzzer) -> Draft:
    return Draft([0], probs=torch.full((1, fuzzer.vocab), math.nan))


ANYWHERE: dict[str, Fault] = {
    "raises": _raise,
    "waits-and-raises": _late,
    "asks-for-a-stranger": lambda fuzzer, step, seq: step.part(fuzzer),
}
"""Faults that any hook can make."""

DRAFTING: dict[str, Fault] = {
    "raises": _raise,
    "token-outside-the-vocabulary": _proposes(lambda fuzzer: Draft([fuzzer.vocab])),
    "token-far-outside": _proposes(lambda fuzzer: Draft([2**70])),
    "negative-token": _proposes(lambda fuzzer: Draft([0, -1])),
    "too-long": _proposes(lambda fuzzer: Draft([0] * 10_000)),
    "too-wide": _proposes(lambda fuzzer: Draft([0] * 10_000, parents=[-1] * 10_000)),
    "empty": _proposes(lambda fuzzer: Draft([])),
    "floats": _proposes(lambda fuzzer: Draft(torch.ones(2))),
    "a-text": _proposes(lambda fuzzer: Draft("ab")),  # type: ignore[arg-type]
    "no-draft": _proposes(lambda fuzzer: [0, 1]),
    "nothing": _proposes(lambda fuzzer: None),
    "parents-forward": _proposes(lambda fuzzer: Draft([0, 1], parents=[1, -1])),
    "a-sibling-twice": _proposes(lambda fuzzer: Draft([0, 0], parents=[-1, -1])),
    "not-numbers": _proposes(_poisoned_draft),
    "twice": _twice,
    "decides-in-draft": _decides(lambda fuzzer: Verdict((), 0)),
    "limits-and-drafts": lambda fuzzer, step, seq: step.plan(DraftPlan({})),
}
"""Faults for an offered sequence."""

DECIDING: dict[str, Fault] = {
    "raises": _raise,
    "verdict-outside-the-vocabulary": _decides(lambda fuzzer: Verdict((), fuzzer.vocab)),
    "path-outside-the-draft": _decides(lambda fuzzer: Verdict(range(10_000), 0)),
    "no-verdict": _decides(lambda fuzzer: 0),
    "proposes-in-accept": _proposes(lambda fuzzer: Draft([0])),
}
"""Faults for a sequence without a verdict."""

AFTERWARDS: dict[str, Fault] = {
    "raises": _raise,
    "decides-late": _decides(lambda fuzzer: Verdict((), 0)),
    "drafts-late": _proposes(lambda fuzzer: Draft([0])),
    "rewinds-without-owning": lambda fuzzer, step, seq: step.rewind(seq, 0),
}
"""Faults after all verdicts."""
