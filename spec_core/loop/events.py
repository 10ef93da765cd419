"""What a step emitted, token by token."""

from __future__ import annotations

from torch import Tensor

from spec_core.contract.batch import Part
from spec_core.contract.request import Emitted
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.sampling.logprob import Logprob, logprob


def emitted(step: Step) -> list[Emitted]:
    """Events of this step, in batch order. Called while the logits are still valid."""
    events: list[Emitted] = []
    for part in step.parts:
        if part.emitted and part.seq.finish != "error":
            events += _events(step, part)
    return events


def _events(step: Step, part: Part) -> list[Emitted]:
    seq, count = part.seq, len(part.emitted)
    drafted = len(part.raw.path) if part.raw else 0
    logprobs = _logprobs(step, part)
    pieces = _pieces(seq, count)
    first = seq.t - count
    return [
        Emitted(
            seq,
            token,
            first + i,
            pieces[i],
            part.source if i < drafted else None,
            logprobs[i] if logprobs else None,
        )
        for i, token in enumerate(part.emitted)
    ]


def _pieces(seq: Sequence, count: int) -> list[str]:
    """A piece of text per emitted token; a stop token has none."""
    if seq.text is None:
        return [""] * count
    if seq.finish:
        seq.text.end()
    pieces = seq.text.take()
    return pieces + [""] * (count - len(pieces))


def _logprobs(step: Step, part: Part) -> list[Logprob] | None:
    """Exact for accepted tokens too: each from the row that chose it."""
    best = part.seq.sampling.logprobs
    if best is None or part.raw is None:
        return None
    logits: Tensor = step.logits(part.seq)
    rows = [0, *(1 + i for i in part.raw.path)]
    return [logprob(logits[row], token, best) for row, token in zip(rows, part.emitted, strict=False)]
