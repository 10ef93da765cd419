"""Rejection with lenience (Leviathan et al., 2211.17192, appendix A.5): keep x with probability min(1, p / (l q)).

With l = 1 it is lossless; below, more is kept, and by how much the text's distribution differs is counted.
"""

from __future__ import annotations

import attrs
import numpy as np
from attrs.validators import gt, le

from spec_core import Compat, Verdict, hookimpl
from spec_core.toolkit import draft_distribution, target_distribution


@attrs.define(eq=False)
class Lenient:
    """Keep a drafted token with probability min(1, p / (lenience q))."""

    lenience: float = attrs.field(
        default=0.5, validator=[gt(0.0), le(1.0)], metadata={"help": "1 is lossless, below it more drafts are kept"}
    )

    @hookimpl
    def compat(self):
        return Compat(
            judges={"sampled", "deterministic"},
            noise="private",
            lossy=f"keeps drafts {1 / self.lenience:g} times too likely" if self.lenience < 1 else None,
        )

    @hookimpl
    def accept(self, step):
        for seq in step.undecided:
            if step.part(seq).drafted and seq.sampling.temperature > 0:
                step.decide(seq, self.verdict(step, seq, step.part(seq).draft))

    def verdict(self, step, seq, draft):
        """One coin for each draft, and one for the token after the path."""
        coins = step.coins(seq, len(draft) + 1)
        path, node, distance = [], -1, 0.0
        while node is not None:
            p = target_distribution(step, seq, 1 + node)
            node, left, lost = self.follow(p, draft, node, coins)
            path += [node] if node is not None else []
            distance += lost
        return Verdict(path, draw(left, coins[-1]), distance if self.lenience < 1 else 0.0)

    def follow(self, p, draft, node, coins):
        """(the kept child or None, what is left of p, distance of what is emitted here from p)."""
        left, chance, emitted, kept = p, 1.0, np.zeros_like(p), None
        for child in children(draft, node):
            q, token = draft_distribution(draft, child, len(p)), draft.ids[child]
            take = np.minimum(q, left / self.lenience)
            emitted += chance * take
            chance *= 1 - take.sum()
            if kept is None and coins[child] * q[token] < take[token]:
                kept = child
            left = remainder(left, q)
        return kept, left, float(np.abs(emitted + chance * left - p).sum() / 2)


def children(draft, node):
    """Drafts that follow a node (-1: committed text), in the order drawn, equal ones too."""
    parents = draft.parents if draft.parents is not None else range(-1, len(draft) - 1)
    return [child for child, parent in enumerate(parents) if parent == node]


def remainder(p, q):
    """norm((p - q)+); p itself where nothing is left, which no draw can reach."""
    left = np.maximum(p - q, 0)
    return left / left.sum() if left.sum() > 0 else p


def draw(p, coin):
    """A token from p [V] by a uniform in (0, 1); never one without a chance."""
    sums = p.cumsum()
    return int(min(np.searchsorted(sums, coin * sums[-1], side="right"), p.nonzero()[0][-1]))
