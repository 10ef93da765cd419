"""A drafter that samples, and the exact distribution of a small target's texts."""

from __future__ import annotations

import attrs
import numpy as np
import torch

from spec_core import Compat, Draft, DraftStep, Needs, Sampling, Sequence, hookimpl
from spec_core.sampling.choose import adjust_row, support
from spec_core.testing import ToyTarget
from tests.core.toys import forward

SAMPLED = Sampling(temperature=1.0)


@attrs.define(eq=False)
class Sampler:
    """Draws from q[last token] by the step's noise: a chain, or a tree of ``shape`` (children per level).

    kind: the class of the rows that it proposes.
    """

    q: np.ndarray
    shape: tuple[int, ...] = ()
    replace: bool = False
    kind: type[torch.Tensor] = torch.Tensor

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"sampled", "unknown"}, needs=Needs(trees=bool(self.shape)))

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            ids, rows, parents = self._tree(step, seq, budget) if self.shape else self._chain(step, seq, budget)
            probs = torch.from_numpy(np.array(rows)).as_subclass(self.kind) if step.wants_probs else None
            step.propose(seq, Draft(ids, "sampled" if step.wants_probs else "unknown", probs, parents))

    def _chain(self, step: DraftStep, seq: Sequence, budget: int) -> tuple[list[int], list[np.ndarray], None]:
        text = list(seq.tokens)
        rows = []
        for i in range(budget):
            rows.append(self.q[text[-1]])
            text.append(int((np.log(rows[-1]) + step.noise(seq, i).numpy()).argmax()))
        return text[len(seq.tokens) :], rows, None

    def _tree(self, step: DraftStep, seq: Sequence, budget: int) -> tuple[list[int], list[np.ndarray], list[int]]:
        ids: list[int] = []
        rows: list[np.ndarray] = []
        parents: list[int] = []
        level = [-1]
        for depth, children in enumerate(self.shape[:budget]):
            begin = len(ids)
            for place, node in enumerate(level):
                p = self.q[ids[node] if node >= 0 else seq.tokens[-1]]
                for i in range(children):
                    branch = place * children + i if self.replace else place
                    score = logs(p) + step.noise(seq, depth, branch).numpy()
                    ids.append(int(score.argmax()))
                    rows.append(p)
                    parents.append(node)
                    p = p if self.replace else without(p, ids[-1])
            level = list(range(begin, len(ids)))
        return ids, rows, parents


def logs(p: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(p)


def without(p: np.ndarray, token: int) -> np.ndarray:
    """The best of the remaining tokens with the same noise is a draw without replacement."""
    left = np.where(np.arange(len(p)) == token, 0.0, p)
    return left / left.sum()


def near(target: ToyTarget, seed: int = 0) -> np.ndarray:
    """A drafter's distributions [V, V]: what the target says after single tokens, with noise on the logits."""
    rng = np.random.default_rng(seed)
    rows = [forward(target, [token])[1].logits[-1].numpy() for token in range(target.info.vocab)]
    logits = np.array(rows) + rng.normal(size=(len(rows), len(rows)))
    return torch.softmax(torch.from_numpy(logits), -1).numpy()


def text_distribution(
    target: ToyTarget, prompt: list[int], n: int, sampling: Sampling = SAMPLED
) -> dict[tuple[int, ...], float]:
    """{text: chance} of all texts of n tokens, as plain decoding draws them."""
    p: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(n):
        p = {
            (*text, x): chance * one
            for text, chance in p.items()
            for x, one in next_distribution(target, prompt, list(text), sampling)
        }
    return p


def next_distribution(
    target: ToyTarget, prompt: list[int], text: list[int], sampling: Sampling
) -> list[tuple[int, float]]:
    """(token, chance) of what may follow."""
    row = forward(target, [*prompt, *text])[1].logits[-1]
    ids, z = support(adjust_row(row, sampling, [*prompt, *text], len(prompt)), sampling)
    return list(zip(ids.tolist(), torch.softmax(z, -1).tolist(), strict=True))
