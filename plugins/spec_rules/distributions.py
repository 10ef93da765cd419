"""The input of a rule: a draft, the target's distribution at every row, and the distribution of every drafted token.

All distributions are [V] float64 numpy arrays that sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import attrs
import numpy as np
from torch import Tensor

from spec_core import Draft, Sequence, Step
from spec_core.toolkit import drafted_from, drafts_on_host, rows_on_host, target_distribution

Rows = Callable[[int], np.ndarray]


@attrs.frozen(eq=False)
class Case:
    """A draft to be judged.

    p: row -> the target's distribution under the request's sampling parameters; row 0 follows committed text, row 1 + j
        draft j.
    q: j -> the distribution that draft j was drawn from, given its ancestors and the siblings drawn before it.
    """

    draft: Draft
    p: Rows
    q: Rows

    def children(self, node: int) -> list[int]:
        """Drafts that follow ``node`` (-1: committed text), in the order drawn; equal ones included."""
        if self.draft.parents is None:
            return [node + 1] if node + 1 < len(self.draft) else []
        return [j for j, parent in enumerate(self.draft.parents) if parent == node]


def cases(step: Step, seqs: list[Sequence]) -> dict[Sequence, Case]:
    """The case of every sequence; each has a draft.

    Logits and ``probs`` that lie on a device are copied once for all. A distribution is evaluated when a rule first
    reads it, and kept for this step.
    """
    rows, drafts = rows_on_host(step, seqs), drafts_on_host(step, seqs)
    return {seq: _case(step, seq, rows[seq], drafts[seq]) for seq in seqs}


def _case(step: Step, seq: Sequence, rows: Tensor, draft: Draft) -> Case:
    vocab = step.target.info.vocab
    return Case(
        draft,
        cache(lambda row: target_distribution(step, seq, row, rows)),
        cache(lambda j: drafted_from(draft, j, vocab)),
    )


def excess(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """(p - q)+, unnormalised."""
    return np.maximum(p - q, 0.0)


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """norm((p - q)+): the residual of p after a draft from q was rejected; p if only rounding errors remain."""
    return normalised(excess(p, q), otherwise=p)


def normalised(weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    mass = weights.sum()
    return weights / mass if mass > 0 else otherwise
