"""After the verdicts: cut at stop or limit, append tokens, collect the rows for ``process`` and the events."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from spec_core.contract.batch import Part
from spec_core.contract.fields import ReadOnlyList
from spec_core.contract.layout import hide_numbers
from spec_core.contract.request import Emitted
from spec_core.contract.rows import Span
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Verdict
from spec_core.loop.constrain import check_allowed, completes, dead_end
from spec_core.loop.schedule import remaining_tokens
from spec_core.sampling.logprob import logprob


def cut_verdicts(step: Step) -> None:
    """Cut every verdict at the first stop token, stop text, completed constraint or limit inside it.

    The last token of a sequence is never evaluated: a drafted token that ends it becomes the verdict's ``next_token``.
    """
    for part in step.parts:
        if part.verdict is None or part.seq.finish == "error":
            continue
        part.full_verdict = part.verdict
        draft = part.draft
        tokens = [draft.ids[i] for i in part.verdict.path] if draft else []
        tokens.append(part.verdict.next_token)
        last = _ends_at(part, tokens, step.target.info.context)
        part.emitted = tokens[: last + 1]
        if last < len(part.verdict.path):
            part.verdict = Verdict(part.verdict.path[:last], tokens[last])


def _ends_at(part: Part, tokens: list[int], context: int) -> int:
    """Index of the token that ends the sequence, or of the last one. Sets ``seq.finish``."""
    seq = part.seq
    held, left = part.masks is not None, remaining_tokens(seq, context)
    for i, token in enumerate(tokens):
        if held and i and dead_end(part, i):
            return i - 1  # the next step finds it at its first row
        if held and not check_allowed(part, i, token):
            return i
        if token in seq.stop.tokens or (seq.text is not None and seq.text.put(token)):
            seq.finish = "stop"
        elif seq.matcher is not None and completes(seq, token):
            seq.finish = seq.finish or "complete"
        elif i + 1 >= left:
            seq.finish = "length"
        if seq.finish:
            return i
    return len(tokens) - 1


def commit_tokens(step: Step, learners: frozenset[str]) -> Mapping[Sequence, Span]:
    """Append the emitted tokens and build the rows that are not delivered yet, where a plugin asks for them.

    learners: plugins that have ``process``.
    """
    spans = {}
    for part in step.parts:
        seq = part.seq
        if seq.finish == "error":
            part.emitted = []
            continue
        kept = len(part.verdict.path) if part.verdict else 0
        end = part.end + kept
        list.extend(seq.tokens, part.emitted)  # plugins cannot
        seq.verdict_count += part.decides
        seq.evaluated = end if part.rewound is None else min(end, part.rewound)
        _hold(seq)
        if end > seq.delivered:
            if learners and (seq.methods is None or not learners.isdisjoint(seq.methods)):
                spans[seq] = _span(step, part, seq.delivered, end)
            seq.delivered = end
    return MappingProxyType(spans)


def _hold(seq: Sequence) -> None:
    """Record in the slot which tokens its rows hold."""
    slot = seq.slot
    have = min(slot.evaluated, seq.evaluated)
    slot.tokens[have:] = seq.tokens[have : seq.evaluated]
    slot.evaluated = seq.evaluated


def _span(step: Step, part: Part, start: int, end: int) -> Span:
    seq = part.seq
    rows = _rows(part, start, end)
    output = step.output
    assert output is not None
    return Span(
        start=start,
        tokens=ReadOnlyList(hide_numbers(seq, seq.tokens[start:end])),
        next=ReadOnlyList(hide_numbers(seq, seq.tokens[start + 1 : end + 1])),
        next_embeds={p - start - 1: e.clone() for p, e in seq.embeds.items() if start < p <= end} if seq.embeds else {},
        hidden={i: h[rows] for i, h in output.hidden.items()} if output.hidden else {},
        final=None if output.final is None else output.final[rows],
    )


def _rows(part: Part, start: int, end: int) -> slice | Tensor:
    """Batch rows of positions start ... end-1: a slice where they are adjacent, else a tensor, faster than a list."""
    if part.verdict is None or part.draft is None or part.draft.parents is None:
        return slice(part.row + start - part.start, part.row + end - part.start)
    rows = [*range(part.row, part.first_draft_row), *(part.first_draft_row + i for i in part.verdict.path)]
    rows = rows[start - part.start : end - part.start]
    together = rows[-1] - rows[0] + 1 == len(rows)
    return slice(rows[0], rows[-1] + 1) if together else torch.from_numpy(np.array(rows))


def events_of(step: Step) -> list[Emitted]:
    """Events of this step, in batch order."""
    events: list[Emitted] = []
    for part in step.parts:
        if part.emitted and part.seq.finish != "error":
            events += _events(part)
    return events


def _events(part: Part) -> list[Emitted]:
    seq, count = part.seq, len(part.emitted)
    path = part.full_verdict.path if part.full_verdict else ()
    sources = part.sources if path else []
    pieces = _pieces(seq, count)
    first = seq.output_position - count
    return [
        Emitted(
            seq,
            token,
            first + i,
            pieces[i],
            sources[path[i]] if i < len(path) else None,
            part.logprobs[i] if part.logprobs else None,
        )
        for i, token in enumerate(part.emitted)
    ]


def _pieces(seq: Sequence, count: int) -> list[str]:
    """A piece of text per emitted token; empty for a stop token."""
    if seq.text is None:
        return [""] * count
    if seq.finish:
        seq.text.end()
    pieces = seq.text.take()
    return pieces + [""] * (count - len(pieces))


def read_logprobs(step: Step) -> None:
    """Log-probabilities of the emitted tokens, each from the logits row that chose it, before another hook runs."""
    for part in step.parts:
        best = part.seq.sampling.logprobs
        if best is not None and part.full_verdict is not None and part.seq.finish != "error":
            logits: Tensor = step.logits(part.seq)
            rows = [0, *(1 + i for i in part.full_verdict.path)]
            part.logprobs = tuple(
                logprob(logits[row], token, best) for row, token in zip(rows, part.emitted, strict=False)
            )
