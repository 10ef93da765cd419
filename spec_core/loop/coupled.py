"""The lossless default of ``accept``: seed-coupled sample-then-match.

At every kept node the target chooses its token with the shared noise; a child that equals it is kept. The token chosen
at output position t depends only on committed text, seed and t, so a seed gives the same text with every method,
every draft length and every batch, and with plain decoding. Sequences that a rule with private noise leaves undecided
are decided in the same way, with noise that no other request and no drafter reads. Shared noise: Daliri, Musco, Suresh,
"Coupling without Communication and Drafter-Invariant Speculative Decoding", 2408.07978.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from torch import Tensor

from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Compat, Draft, Verdict
from spec_core.contract.verified_step import AcceptStep
from spec_core.errors import TargetError
from spec_core.hookspecs import hookimpl
from spec_core.sampling import native
from spec_core.sampling.choose import KINDS, bits, finite_choice
from spec_core.sampling.parameters import LOWEST
from spec_core.toolkit.choosing import Choose, choice_on_host, choosers, walk_draft


@attrs.define(eq=False)
class Coupled:
    """Keep the drafted tokens that the target itself chooses under the seed's noise."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="shared")

    @hookimpl(trylast=True)
    def accept(self, step: AcceptStep) -> None:
        for seq, outcome in judge_matches(step):
            if isinstance(outcome, TargetError):
                step.fail(seq, outcome)
            else:
                step.decide(seq, outcome)


def judge_matches(step: AcceptStep) -> Iterator[tuple[Sequence, Verdict | TargetError]]:
    """The verdict of each undecided sequence, or the error of its logits."""
    state = step._shown[0]  # the core's own rule reads the state itself
    assert state.output is not None
    logits = state.output.logits
    if native.module is None or not logits.is_cpu or logits.dtype not in KINDS or logits.stride(-1) != 1:
        for seq, choice in choosers(step):
            yield seq, _attempt(step.part(seq).draft, choice)
        return
    jobs, short = _jobs(step, logits)
    for seq, outcome in zip(jobs, native.module.walk(list(jobs.values())), strict=True):
        yield seq, _verdict(*outcome)
    for seq in short:  # an IndexError
        yield seq, _attempt(step.part(seq).draft, choice_on_host(step, seq, step.logits(seq)))


def _jobs(step: AcceptStep, logits: Tensor) -> tuple[dict[Sequence, tuple[Any, ...]], list[Sequence]]:
    """The arguments of the native ``walk`` for each sequence, and sequences whose rows the target did not return."""
    first, stride = logits.data_ptr(), logits.stride(0) * logits.element_size()
    (rows, n), kind = logits.shape, KINDS[logits.dtype]
    jobs, short, state = {}, [], step._shown[0]
    for seq in step.undecided:
        part = state.part(seq)
        if part.logits_row + part.drafted < rows:
            ids, parents = (None, None) if part.draft is None else (part.draft.ids, part.draft.parents)
            row = (
                first + part.logits_row * stride,
                stride,
                kind,
                n,
                seq.sampling._terms,
                state.choosing(seq),
                seq.output_position,
            )
            masks = () if part.masks is None else bits(part.masks)
            jobs[seq] = (*row, seq.tokens, seq.prompt_len, ids, parents, *masks)
        else:
            short.append(seq)
    return jobs, short


def _attempt(draft: Draft | None, choice: Choose) -> Verdict | TargetError:
    try:
        return walk_draft(draft, choice)
    except TargetError as error:
        return error


def _verdict(path: tuple[int, ...], token: int, logit: float) -> Verdict | TargetError:
    if logit > LOWEST:
        return Verdict(path, token)
    return _attempt(None, lambda row: finite_choice([token], [logit]))
