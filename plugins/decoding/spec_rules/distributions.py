"""The input of a rule: a draft, the target's distribution at every row, and the distribution of every drafted token.

All distributions are [V] float64 and sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import attrs
import torch
from torch import Tensor

from spec_core import AcceptStep, Draft, Sequence
from spec_core.toolkit import (
    draft_distribution,
    draft_distributions,
    drafts_on_host,
    rows_on_host,
    target_distribution,
    target_distributions,
)

Rows = Callable[[int], Tensor]


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


def cases_on_host(step: AcceptStep, seqs: list[Sequence]) -> dict[Sequence, Case]:
    """The case of every sequence; each has a draft.

    Logits and ``probs`` that lie on a device are copied once for all. A distribution is evaluated when a rule first
    reads it, and kept for this step.
    """
    rows, drafts = rows_on_host(step, seqs), drafts_on_host(step, seqs)
    return {seq: _case(step, seq, rows[seq], drafts[seq]) for seq in seqs}


def _case(step: AcceptStep, seq: Sequence, rows: Tensor, draft: Draft | None) -> Case:
    assert draft is not None
    vocab = step.target.info.vocab
    return Case(
        draft,
        cache(lambda row: torch.from_numpy(target_distribution(step, seq, row, rows))),
        cache(lambda j: torch.from_numpy(draft_distribution(draft, j, vocab))),
    )


def device_cases(step: AcceptStep, seqs: list[Sequence]) -> Iterator[tuple[Case, Tensor]]:
    """(case, largest logit of each row [1+K]) of every sequence, on the device of the logits.

    One after the other, so that the rows of one may be freed before the next. Only rows of sequences that sample with
    top-k, top-p or min-p are copied to the host, all together.
    """
    rows = rows_on_host(step, [seq for seq in seqs if seq.sampling.truncates])
    for seq in seqs:
        draft = step.part(seq).draft
        p, largest = target_distributions(step, seq, rows.get(seq))
        assert draft is not None
        yield Case(draft, p.__getitem__, _draft_rows(draft, p)), largest


def _draft_rows(draft: Draft, p: Tensor) -> Rows:
    """The rows of q, which are evaluated together when a rule first reads one."""
    rows = cache(lambda: draft_distributions(draft, p))
    return lambda j: rows()[j]


def excess(p: Tensor, q: Tensor) -> Tensor:
    """(p - q)+, unnormalised."""
    return (p - q).clamp_(min=0.0)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm((p - q)+): the residual of p after a draft from q was rejected; p if only rounding errors remain."""
    return normalise(excess(p, q), otherwise=p)


def normalise(weights: Tensor, otherwise: Tensor) -> Tensor:
    mass = weights.sum(-1)
    return torch.where(mass > 0, weights / mass, otherwise)
