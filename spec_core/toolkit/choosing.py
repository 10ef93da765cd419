"""What the target chooses at every row, and the path of a draft that its choices follow. For rules.

The token chosen at output position t depends on committed text, seed and t only; under a rule with private noise on
the number of the request too. Sampling by shared noise: Daliri, Musco, Suresh, 2408.07978.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Draft, Verdict
from spec_core.errors import TargetError
from spec_core.sampling import native
from spec_core.sampling.choose import KINDS, drawn, largest, number
from spec_core.sampling.parameters import LOWEST

Choose = Callable[[int], int]
"""Row -> token: row 0 follows committed text, row 1 + j the draft j."""


def walk(draft: Draft | None, choice: Choose) -> Verdict:
    """Follow the choices down the draft. choice: row -> token; row 0 follows committed text, row 1+j draft j."""
    path: list[int] = []
    token, node = choice(0), -1
    while draft is not None and (child := draft.children(node).get(token)) is not None:
        path.append(child)
        token, node = choice(1 + child), child
    return Verdict(tuple(path), token)


def choosers(step: Step) -> list[tuple[Sequence, Choose]]:
    """How each undecided sequence chooses. Greedy ones share one argmax, and on a device one transfer."""
    undecided = list(step.undecided)
    if not any(seq.sampling.greedy for seq in undecided):
        return [(seq, sampled(step, seq)) for seq in undecided]
    best = largest(step.output.logits)
    return [(seq, greedy(step, seq, best) if seq.sampling.greedy else sampled(step, seq)) for seq in undecided]


def greedy(step: Step, seq: Sequence, best: tuple[list[int], list[float]]) -> Choose:
    at = step.part(seq).at
    return lambda row: number(*best, at + row)


def sampled(step: Step, seq: Sequence) -> Choose:
    """Evaluates a row only when the path gets there."""
    logits, draft = step.logits(seq), step.part(seq).draft
    source = step.choosing(seq)

    def choice(row: int) -> int:
        depth = draft.depths[row - 1] if row and draft else 0
        history = step.history(seq, row), seq.prompt_len, ()
        token, logit, _ = drawn(logits[row], seq.sampling, source, seq.t + depth, history)
        return number([token], [logit])

    return choice


def matched(step: Step) -> Iterator[tuple[Sequence, Verdict | TargetError]]:
    """What each undecided sequence keeps of its draft and the token after it, or why its rows give none."""
    logits = step.output.logits
    if native.module is None or not logits.is_cpu or logits.dtype not in KINDS or logits.stride(-1) != 1:
        for seq, choice in choosers(step):
            yield seq, _attempt(step.part(seq).draft, choice)
        return
    ready, jobs = _jobs(step, logits)
    for seq, found in zip(ready, native.module.walk(jobs), strict=True):
        yield seq, _verdict(*found)
    for seq in step.undecided:  # the target forgot rows of these: an IndexError
        yield seq, _attempt(step.part(seq).draft, sampled(step, seq))


def _jobs(step: Step, logits: Tensor) -> tuple[list[Sequence], list[tuple[Any, ...]]]:
    """Sequences whose rows are there, with these and what is to be chosen from them, as the native form takes it."""
    first, stride = logits.data_ptr(), logits.stride(0) * logits.element_size()
    (rows, n), kind = logits.shape, KINDS[logits.dtype]
    ready, jobs = [], []
    for seq in step.undecided:
        part = step.part(seq)
        if part.at + part.drafted < rows:
            draft = (None, None) if part.draft is None else (part.draft.ids, part.draft.parents)
            chance = seq.sampling._terms, step.choosing(seq), seq.t
            jobs.append((first + part.at * stride, stride, kind, n, *chance, seq.tokens, seq.prompt_len, *draft))
            ready.append(seq)
    return ready, jobs


def _attempt(draft: Draft | None, choice: Choose) -> Verdict | TargetError:
    try:
        return walk(draft, choice)
    except TargetError as error:
        return error


def _verdict(path: tuple[int, ...], token: int, logit: float) -> Verdict | TargetError:
    if logit > LOWEST:
        return Verdict(path, token)
    return _attempt(None, lambda row: number([token], [logit]))
