"""Rejection with lenience (Leviathan et al., 2211.17192, appendix A.5): keep x with probability min(1, p / (l q)).

With l = 1 it is lossless; below, more is kept, and by how much the text's distribution differs is counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import torch
from attrs.validators import gt, le
from torch import Tensor
from torch.nn.functional import one_hot

from spec_core import Compat, Draft, Sequence, Step, Verdict, hookimpl
from spec_core.toolkit import adjust, support


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
            part = step.part(seq)
            if part.draft is not None and seq.sampling.temperature > 0:
                step.decide(seq, self.verdict(Rows(step, seq), part.draft, step.coins(seq, len(part.draft) + 1)))

    def verdict(self, rows, draft, coins):
        """coins: one for each draft, and one for the token after the path."""
        path, node, distance = [], -1, 0.0
        while node is not None:
            node, left, lost = self.follow(rows.after(node), draft, node, coins)
            distance += lost
            path += [node] if node is not None else []
        return Verdict(path, draw(left, coins[-1]), distance if self.lenience < 1 else 0.0)

    def follow(self, p, draft, node, coins):
        """(the kept child or None, what is left of p, distance of what is emitted here from p)."""
        left, chance, emitted, kept = p, 1.0, torch.zeros_like(p), None
        for child, q in children(draft, node, len(p)):
            take = torch.minimum(q, left / self.lenience)
            token = draft.ids[child]
            emitted += chance * take
            chance *= 1 - float(take.sum())
            if kept is None and coins[child] * q[token] < take[token]:
                kept = child
            left = remainder(left, q)
        return kept, left, float((emitted + chance * left - p).abs().sum() / 2)


@attrs.define(eq=False)
class Rows:
    """The target's distributions of one sequence's step."""

    step: Step
    seq: Sequence

    def after(self, node: int) -> Tensor:
        """[V] float64 after draft ``node`` (-1: committed text), after everything the user asked for."""
        seq, row = self.seq, 1 + node
        logits = adjust(self.step.logits(seq)[row], seq.sampling, self.step.history(seq, row), seq.prompt_len)
        ids, z = support(logits, seq.sampling)
        return torch.zeros(len(logits), dtype=torch.float64).index_put((ids,), z.softmax(0))


def children(draft: Draft, node: int, vocab: int) -> Iterator[tuple[int, Tensor]]:
    """(index, distribution it was drawn from) of the drafts that follow a node, in the order drawn."""
    parents = draft.parents if draft.parents is not None else range(-1, len(draft) - 1)
    for child, parent in enumerate(parents):
        if parent == node:
            yield child, drawn_from(draft, child, vocab)


def drawn_from(draft: Draft, child: int, vocab: int) -> Tensor:
    """[V] float64; a draft that was not drawn is a point mass."""
    if draft.probs is not None:
        return draft.probs[child].double()
    return one_hot(draft.tokens[child], vocab).double()


def remainder(p: Tensor, q: Tensor) -> Tensor:
    """norm((p - q)+); p itself where nothing is left, which no draw can reach."""
    left = (p - q).clamp_min(0)
    return left / left.sum() if left.sum() > 0 else p


def draw(p: Tensor, coin: float) -> int:
    up_to = p.cumsum(0)
    return int(torch.searchsorted(up_to, coin * up_to[-1], right=True))
