"""Exact distributions of emitted text: all drafts and all random outcomes, weighted, with the rule's own code.

A rule's decisions have finitely many outcomes of known probability. Following all of them integrates the uniform
variables out, so a difference from the target's distribution is the rule's, not a sample's.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import attrs
import numpy as np
import torch
from spec_rules.decisions import Decision, Trial
from spec_rules.distributions import Case

from spec_core import Draft, Verdict

Decisions = Callable[[Case], Decision]
ArrayRows = Callable[[int], np.ndarray]
Prefix = tuple[int, ...]
Weighted = tuple[Draft, list[np.ndarray], float]
"""A draft, the distribution each of its tokens is said to come from, and the probability of the draft."""


def case_of(draft: Draft, p: ArrayRows, q: ArrayRows) -> Case:
    """A case from functions that return arrays."""
    return Case(draft, lambda row: torch.from_numpy(p(row)), lambda j: torch.from_numpy(q(j)))


def outcomes(decisions: Decisions, case: Case) -> Iterator[tuple[Verdict, float]]:
    """Every verdict of a rule on one draft, with its probability."""
    todo = [(decisions(case), 1.0)]
    while todo:
        node, weight = todo.pop()
        if isinstance(node, Trial):
            if math.isnan(node.q):
                raise ValueError(node.refusal)
            chance = min(1.0, float(node.p / node.q)) if node.q > 0 else float(node.p > 0)
            todo += [(node.accepted(), weight * chance)] if chance > 0 else []
            todo += [(node.rejected(), weight * (1 - chance))] if chance < 1 else []
            continue
        for token, chance in enumerate((node.weights / node.weights.sum()).tolist()):
            if chance > 0 and token in node.nexts:
                todo.append((node.nexts[token](), weight * chance))
            elif chance > 0:
                yield Verdict(node.path, token), weight * chance


@attrs.define
class World:
    """Random distributions of a target and a drafter, one for every prefix shorter than ``length`` tokens.

    flat: the drafter does not see the tokens drafted before, like one that drafts a block in one forward.
    sparse: half of the target's rows give one token no chance, and half of the drafter's another. same: q is p.
    """

    vocab: int
    length: int
    seed: int = 0
    flat: bool = False
    sparse: bool = False
    same: bool = False
    p: dict[Prefix, np.ndarray] = attrs.field(factory=dict)
    q: dict[Prefix, np.ndarray] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        for n in range(self.length):
            shared = self._distribution(rng)
            for prefix in itertools.product(range(self.vocab), repeat=n):
                self.p[prefix] = self._distribution(rng)
                self.q[prefix] = self.p[prefix] if self.same else shared if self.flat else self._distribution(rng)

    def _distribution(self, rng: np.random.Generator) -> np.ndarray:
        row = rng.dirichlet(np.ones(self.vocab))
        return strike(row, (int(rng.integers(self.vocab)),)) if self.sparse and rng.random() < 0.5 else row

    def texts(self) -> Iterator[Prefix]:
        return itertools.product(range(self.vocab), repeat=self.length)

    def distribution(self, after: Prefix = ()) -> np.ndarray:
        """The target's distribution of the texts of ``length`` tokens that begin with ``after``."""
        return np.array(
            [self.chance(text, len(after)) if text[: len(after)] == after else 0.0 for text in self.texts()]
        )

    def chance(self, text: Prefix, start: int = 0) -> float:
        return float(np.prod([self.p[text[:i]][text[i]] for i in range(start, len(text))]))

    def rows(self, draft: Draft) -> ArrayRows:
        """The target's distribution by row."""
        return lambda row: self.p[prefix(draft, row - 1)]


def prefix(draft: Draft, node: int) -> Prefix:
    """Drafted tokens down to a node, itself included."""
    return tuple(draft.ids[i] for i in draft.ancestry(node))


def parents_of(shape: Iterable[int]) -> list[int]:
    """``(3, 2)``: three children of the root, each with two."""
    parents: list[int] = []
    level = [-1]
    for children in shape:
        begin = len(parents)
        parents += [node for node in level for _ in range(children)]
        level = list(range(begin, len(parents)))
    return parents


def draws(world: World, shape: Iterable[int], replace: bool = False, chain: bool = False) -> Iterator[Weighted]:
    """Every tree of sampled drafts. Without replacement a token is struck from the row of its later siblings."""
    parents = parents_of(shape)
    make = lambda ids: Draft(ids, proposal="sampled", parents=None if chain else parents[: len(ids)])

    def extend(ids: list[int], rows: list[np.ndarray], weight: float) -> Iterator[Weighted]:
        if len(ids) == len(parents):
            yield make(ids), rows, weight
            return
        row = next_distribution(ids)
        for token in row.nonzero()[0].tolist():
            yield from extend([*ids, token], [*rows, row], weight * row[token])

    def next_distribution(ids: list[int]) -> np.ndarray:
        parent = parents[len(ids)]
        row = world.q[prefix(make(ids), parent)]
        siblings = [token for token, p in zip(ids, parents, strict=False) if p == parent]
        return row if replace or not siblings else strike(row, tuple(siblings))

    return extend([], [], 1.0)


def strike(row: np.ndarray, tokens: tuple[int, ...]) -> np.ndarray:
    row = row.copy()
    row[list(tokens)] = 0
    return row / row.sum()


def text_distribution(world: World, decisions: Decisions, drafts: Iterable[Weighted]) -> np.ndarray:
    """The distribution of texts of ``world.length`` tokens when a step begins them and the target goes on."""
    emitted: dict[Prefix, float] = defaultdict(float)
    for draft, rows, weight in drafts:
        case = case_of(draft, world.rows(draft), rows.__getitem__)
        for verdict, chance in outcomes(decisions, case):
            emitted[(*(draft.ids[i] for i in verdict.path), verdict.next_token)] += weight * chance
    return sum(weight * world.distribution(text) for text, weight in emitted.items())


def distance(world: World, decisions: Decisions, drafts: Iterable[Weighted]) -> float:
    """Total variation between the emitted text's distribution and the target's."""
    return float(np.abs(text_distribution(world, decisions, drafts) - world.distribution()).sum() / 2)


def emitted_per_step(world: World, decisions: Decisions, drafts: Iterable[Weighted]) -> float:
    """Expected tokens of a step."""
    total = 0.0
    for draft, rows, weight in drafts:
        case = case_of(draft, world.rows(draft), rows.__getitem__)
        total += sum(weight * chance * (len(v.path) + 1) for v, chance in outcomes(decisions, case))
    return total
