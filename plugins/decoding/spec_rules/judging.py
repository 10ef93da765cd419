"""The accept hooks that the rules for sampled text share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate

import numpy as np
import torch

from spec_core import AcceptStep, Sequence, Verdict
from spec_core.errors import TargetError
from spec_core.toolkit import finite_choice
from spec_rules.decisions import Decision, Walk, compute_decisions, follow_decision
from spec_rules.distributions import Case, cases_on_host, device_cases

Verify = Callable[[Case, np.ndarray], Verdict]
"""case, uniforms [2 (K + 1)] float64 -> verdict."""
DRAWN = frozenset({"sampled", "deterministic", "mixed"})
"""Kinds of proposal that a rule with ratios p / q can judge: q of every token is known, or is a point mass."""


def judge_drafts(step: AcceptStep, decisions: Callable[[Case], Decision]) -> None:
    """Decide the sequences that sample and have a draft. decisions: builds a rule's tree.

    Rows on the host are read when the walk reaches them. Rows on a device are judged there, and the
    numbers of all sequences are transferred once.
    """
    seqs = sampling_with_draft(step)
    if seqs and not step.logits(seqs[0]).is_cpu:
        judge_on_device(step, seqs, decisions)
    else:
        judge_on_host(step, seqs, lambda case, uniforms: follow_decision(decisions(case), uniforms))


def sampling_with_draft(step: AcceptStep) -> list[Sequence]:
    """The sequences that a rule decides.

    The core decides the others: at temperature 0 every rule is exact match, and without a draft the target chooses.
    """
    return [seq for seq in step.undecided if step.part(seq).drafted and seq.sampling.temperature > 0]


def judge_on_host(step: AcceptStep, seqs: Iterable[Sequence], verify: Verify) -> None:
    """Decide sequences from rows that are copied to the host."""
    for seq, case in cases_on_host(step, list(seqs)).items():
        decide_sequence(step, seq, partial(verify, case, coins(step, seq)))


def judge_on_device(step: AcceptStep, seqs: list[Sequence], decisions: Callable[[Case], Decision]) -> None:
    """Decide sequences from numbers that are computed on the device of the logits."""
    walks, vectors = [], []
    for seq, (case, largest) in zip(seqs, device_cases(step, seqs), strict=True):
        numbers, walk = compute_decisions(decisions(case), coins(step, seq))
        walks.append(walk)
        vectors += [largest, numbers]
    parts = iter(split_parts(torch.cat(vectors).tolist(), [len(vector) for vector in vectors]))
    for seq, walk in zip(seqs, walks, strict=True):
        decide_sequence(step, seq, partial(read_verdict, walk, largest=next(parts), numbers=next(parts)))


def decide_sequence(step: AcceptStep, seq: Sequence, verdict: Callable[[], Verdict]) -> None:
    """Decide a sequence, or end it if the target's rows have no distribution."""
    try:
        step.decide(seq, verdict())
    except TargetError as error:
        step.fail(seq, error)


def coins(step: AcceptStep, seq: Sequence) -> np.ndarray:
    """Enough uniforms to test every drafted token and the root, and to draw once at every node."""
    return step.coins(seq, 2 * (step.part(seq).drafted + 1))


def split_parts(numbers: list[float], counts: Iterable[int]) -> list[list[float]]:
    """Consecutive parts of these lengths."""
    ends = list(accumulate(counts))
    return [numbers[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def read_verdict(walk: Walk, numbers: list[float], largest: list[float]) -> Verdict:
    """The verdict of a walk. Raises TargetError for rows without a finite logit. largest: of each row."""
    verdict = walk(numbers)
    if verdict is None:
        for row in range(len(largest)):
            finite_choice([0] * len(largest), largest, row)
        raise AssertionError("a rule's numbers are NaN without such a row")
    return verdict
