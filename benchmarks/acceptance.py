"""Tokens per step of each acceptance rule on the same drafts, beside the bound of lossless rules.

``python benchmarks/acceptance.py [--steps 10000] [--write]``

Pairs of distributions are random: p is Dirichlet(a), q is p with normal noise of width sigma on its logits, new for
every depth.
Rules for the same kind of draft decide the same drafts, with the function that their plugin calls. Bounds: for a chain
the sum of min(P, Q) over prefixes of each length; for siblings the optimal transport of 2410.18234.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_rules import block, k_seq, point_mass, rejection, traversal
from spec_rules.decisions import Decision, follow_decision
from spec_rules.distributions import Case

from benchmarks.support import results
from spec_core import Draft, Verdict
from spec_core.toolkit import walk_draft
from spec_core.toolkit.distributions import point_mass as certain

PAIRS = {
    "8 tokens, a = 1, σ = 1": (8, 1.0, 1.0),
    "8 tokens, a = 1, σ = 0.5": (8, 1.0, 0.5),
    "8 tokens, a = 0.1, σ = 1": (8, 0.1, 1.0),
    "64 tokens, a = 0.1, σ = 1": (64, 0.1, 1.0),
    "64 tokens, a = 0.1, σ = 0.5": (64, 0.1, 0.5),
}
WORLDS = 50
"""Pairs of distributions per row of a table; the steps are divided among them."""
CHAIN, TREES, SIBLINGS = (1, 1, 1, 1), ((2, 2), (3, 2, 1)), (2, 4)


@attrs.frozen(eq=False)
class World:
    """p and q by depth. shape: children per level."""

    p: list[np.ndarray]
    q: list[np.ndarray]
    shape: tuple[int, ...]


def world(rng: np.random.Generator, vocab: int, a: float, sigma: float, shape: tuple[int, ...]) -> World:
    p = [np.maximum(rng.dirichlet(np.full(vocab, a)), 1e-12) for _ in range(len(shape) + 1)]
    p = [row / row.sum() for row in p]
    q = [row * np.exp(sigma * rng.normal(size=vocab)) for row in p[:-1]]
    return World(p, [row / row.sum() for row in q], shape)


# drafts


@attrs.frozen(eq=False)
class Drafted:
    """A draft, the distribution of each of its tokens, and the noise it was drawn with, for rules that read it."""

    draft: Draft
    proposals: list[np.ndarray]
    noise: np.ndarray


Siblings = Callable[[World, int, int, np.random.Generator, np.ndarray], tuple[list[int], list[np.ndarray]]]


def independent(w: World, depth: int, k: int, rng: np.random.Generator, noise: np.ndarray) -> tuple:
    q = w.q[depth]
    return rng.choice(len(q), size=k, p=q).tolist(), [q] * k


def without_replacement(w: World, depth: int, k: int, rng: np.random.Generator, noise: np.ndarray) -> tuple:
    q, ids, rows = w.q[depth], [], []
    for _ in range(k):
        ids.append(int(rng.choice(len(q), p=q)))
        rows.append(q)
        q = q.copy()
        q[ids[-1]] = 0
        q /= q.sum()
    return ids, rows


def likeliest(w: World, depth: int, k: int, rng: np.random.Generator, noise: np.ndarray) -> tuple:
    ids = np.argsort(-w.q[depth])[:k].tolist()
    return ids, [certain(x, len(w.q[depth])) for x in ids]


def coupled_draws(w: World, depth: int, k: int, rng: np.random.Generator, noise: np.ndarray) -> tuple:
    return np.argsort(-(np.log(w.q[depth]) + noise[depth]))[:k].tolist(), [w.q[depth]] * k


def draw_tree(w: World, siblings: Siblings, rng: np.random.Generator) -> Drafted:
    """A tree of the world's shape, level by level; a chain if no level branches."""
    noise = rng.gumbel(size=(len(w.p), len(w.p[0])))
    ids: list[int] = []
    rows: list[np.ndarray] = []
    parents: list[int] = []
    level = [-1]
    for depth, k in enumerate(w.shape):
        begin = len(ids)
        for node in level:
            more, theirs = siblings(w, depth, k, rng, noise)
            ids, rows, parents = ids + more, rows + theirs, parents + [node] * k
        level = list(range(begin, len(ids)))
    proposal = "deterministic" if siblings is likeliest else "sampled"
    return Drafted(Draft(ids, proposal=proposal, parents=None if set(w.shape) == {1} else parents), rows, noise)


# rules


Rule = Callable[[World, Drafted, np.random.Generator], Verdict]


def by(decisions: Callable[[Case], Decision]) -> Rule:
    """A plugin's function, with its own coins."""

    def rule(w: World, d: Drafted, rng: np.random.Generator) -> Verdict:
        p = lambda row: torch.from_numpy(w.p[depth_of(d.draft, row)])
        case = Case(d.draft, p, lambda j: torch.from_numpy(d.proposals[j]))
        return follow_decision(decisions(case), rng.random(2 * len(d.draft) + 2))

    return rule


def by_noise(w: World, d: Drafted, rng: np.random.Generator) -> Verdict:
    """The core's rule: the target chooses with the noise that the draft was drawn with."""

    def choice(row: int) -> int:
        depth = depth_of(d.draft, row)
        return int((np.log(w.p[depth]) + d.noise[depth]).argmax())

    return walk_draft(d.draft, choice)


def depth_of(draft: Draft, row: int) -> int:
    return draft.depths[row - 1] if row else 0


ON_CHAINS: dict[str, tuple[Siblings, Rule]] = {
    "point-mass, greedy": (likeliest, by(point_mass.decisions)),
    "point-mass": (independent, by(point_mass.decisions)),
    "coupled": (coupled_draws, by_noise),
    "rejection": (independent, by(rejection.decisions)),
    "block": (independent, by(block.decisions)),
}
ON_TREES: dict[str, tuple[Siblings, Rule]] = {
    "point-mass, top k": (likeliest, by(point_mass.decisions)),
    "rejection, with replacement": (independent, by(rejection.decisions)),
    "k-seq": (independent, by(k_seq.decisions)),
    "rejection": (without_replacement, by(rejection.decisions)),
    "traversal": (without_replacement, by(traversal.decisions)),
    "coupled": (coupled_draws, by_noise),
}


# bounds


def chain_bound(w: World, d: Drafted) -> float:
    """1 + sum over i of min(1, P(x_1..i) / Q(x_1..i)): its mean over drafts from q is the bound on tokens per step."""
    ratio = np.cumprod([w.p[i][x] / w.q[i][x] for i, x in enumerate(d.draft.ids)])
    return 1 + float(np.minimum(1, ratio).sum())


def transport_bound(p: np.ndarray, inside: Callable[[np.ndarray], float]) -> float:
    """Max probability that a rule accepts one of the siblings: min over sets H of P(H) + 1 - Pr(all siblings lie in H).

    Max-flow, min-cut over all 2^V sets. inside: mask [V] -> Pr(all siblings lie in it).
    """
    masks = np.array(list(itertools.product((False, True), repeat=len(p))))
    return min(float(p[mask].sum()) + 1 - inside(mask) for mask in masks)


def independent_inside(q: np.ndarray, k: int) -> Callable[[np.ndarray], float]:
    return lambda mask: float(q[mask].sum()) ** k


def without_inside(q: np.ndarray, k: int) -> Callable[[np.ndarray], float]:
    """Summed over all possible draws of the siblings."""

    def more(mask: np.ndarray, left: float, k: int) -> float:
        if k == 0:
            return 1.0
        total = 0.0
        for x in mask.nonzero()[0]:
            rest = mask.copy()
            rest[x] = False
            total += q[x] / left * more(rest, left - q[x], k - 1)
        return total

    return lambda mask: more(mask, 1.0, k)


# measuring


def measure(entries: dict[str, tuple[Siblings, Rule]], worlds: list[World], steps: int) -> dict[str, float]:
    """Tokens per step by rule. Rules for the same kind of draft get the same drafts."""
    totals = dict.fromkeys(entries, 0.0)
    for i, w in enumerate(worlds):
        for siblings in dict.fromkeys(s for s, _ in entries.values()):
            rng = np.random.default_rng([i, 1])
            drafts = [draw_tree(w, siblings, rng) for _ in range(steps // len(worlds))]
            for name, (kind, rule) in entries.items():
                if kind is siblings:
                    coins = np.random.default_rng([i, 2])
                    totals[name] += sum(1 + len(rule(w, d, coins).path) for d in drafts)
    return {name: total / (steps // len(worlds) * len(worlds)) for name, total in totals.items()}


def worlds_of(pair: tuple[int, float, float], shape: tuple[int, ...]) -> list[World]:
    rng = np.random.default_rng(0)
    return [world(rng, *pair, shape) for _ in range(WORLDS)]


def bound_of_chains(worlds: list[World], steps: int) -> float:
    means = []
    for i, w in enumerate(worlds):
        rng = np.random.default_rng([i, 1])
        means.append(np.mean([chain_bound(w, draw_tree(w, independent, rng)) for _ in range(steps // len(worlds))]))
    return float(np.mean(means))


def chains(steps: int) -> str:
    rows = {}
    for name, pair in PAIRS.items():
        worlds = worlds_of(pair, CHAIN)
        rows[name] = [*measure(ON_CHAINS, worlds, steps).values(), bound_of_chains(worlds, steps)]
    return table(["chains of 4", *ON_CHAINS, "bound"], rows)


def siblings(steps: int) -> str:
    """Probability that one of k siblings is accepted, on vocabularies small enough to compute the bound."""
    rows = {}
    for (name, pair), k in itertools.product(PAIRS.items(), SIBLINGS):
        if pair[0] <= 8:
            worlds = worlds_of(pair, (k,))
            acceptance = {rule: tokens - 1 for rule, tokens in measure(ON_TREES, worlds, steps).items()}
            del acceptance["traversal"]
            bounds = [
                np.mean([transport_bound(w.p[0], inside(w.q[0], k)) for w in worlds])
                for inside in (independent_inside, without_inside)
            ]
            rows[f"{name}, k = {k}"] = [*acceptance.values(), *bounds]
    names = [name for name in ON_TREES if name != "traversal"]
    return table(["siblings", *names, "bound, with replacement", "bound, without"], rows)


def trees(steps: int) -> str:
    rows = {}
    for (name, pair), shape in itertools.product(PAIRS.items(), TREES):
        rows[f"{'-'.join(map(str, shape))}, {name}"] = list(measure(ON_TREES, worlds_of(pair, shape), steps).values())
    return table(["trees", *ON_TREES], rows)


MAKERS = {"chains of 4": chains, "siblings": siblings, "trees": trees}
"""Tables of ``benchmarks/results/acceptance.json`` and what makes them."""


def table(head: list[str], rows: dict[str, list[float]]) -> str:
    lines = [head, ["---"] * len(head)] + [[name, *(f"{x:.3f}" for x in row)] for name, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="per row and rule")
    parser.add_argument("--write", action="store_true", help="save the tables in benchmarks/results")
    args = parser.parse_args()
    tables = {name: make(args.steps) for name, make in MAKERS.items()}
    print("\n\n".join(tables.values()))
    if args.write:
        results.save("acceptance", {name: text.splitlines() for name, text in tables.items()}.get)


if __name__ == "__main__":
    main()
