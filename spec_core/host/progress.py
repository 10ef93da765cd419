"""What an engine did for one request in one of its steps, as a part of a step of the plugins."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import attrs
import torch
from torch import Tensor

from spec_core.contract.batch import Part, Piece, TargetOutput
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft, Needs, Verdict
from spec_core.errors import FOREIGN, UsageError

log = logging.getLogger("spec_core")


def _tuple(tokens: Iterable[int]) -> tuple[int, ...]:
    return tuple(tokens)


@attrs.frozen(eq=False)
class Progress:
    """One request in one step of an engine.

    tokens: those committed by the step: accepted draft tokens, then the one after them. Empty for a chunk
        of a prompt that is not the last.
    checked: how many tokens of the last draft were verified; None means all. The others count as not drafted.
    start: position of the first row of ``hidden`` and ``final``; None means the first that was not reported yet.
    prompt_rows: rows of the prompt that a step without tokens evaluated.
    logits: [1 + checked, V] of the last committed token and the verified draft tokens.
    hidden: {i: [n, D]} and final: [n, D], of the tokens that were committed before the step, from ``start`` on, then of
        the draft tokens in their order, at least up to the last accepted one. Only what ``Host.needs`` names.
    """

    tokens: tuple[int, ...] = attrs.field(default=(), converter=_tuple)
    checked: int | None = None
    start: int | None = None
    prompt_rows: int = 0
    logits: Tensor | None = None
    hidden: Mapping[int, Tensor] = attrs.field(factory=dict)
    final: Tensor | None = None


def verified_part(seq: Sequence, last: Part | None, progress: Progress) -> Part:
    """The share of a step: committed rows, the draft as far as it was verified, and the verdict that the engine made.

    last: the share in which a draft was asked for. Raises UsageError for a progress that contradicts the draft.
    """
    start = seq.delivered if progress.start is None else progress.start
    if start > seq.delivered:
        raise UsageError(
            f"{_name(seq)}: rows {seq.delivered} to {start - 1} were left out",
            hint="tell every committed row once: do not reuse a cached prefix for requests with plugins",
        )
    end = len(seq.tokens) if progress.tokens else start + progress.prompt_rows
    part = Part(seq, start, seq.tokens[start:end], decides=bool(progress.tokens))
    if not progress.tokens:
        return part
    part.budget = 0 if last is None else last.budget
    if last is not None and last.draft is not None:
        part.draft, part.pieces = _cut(last, len(last.draft) if progress.checked is None else progress.checked)
    part.verdict = part.full_verdict = _verdict(part.draft, progress.tokens, _name(seq))
    part.emitted = list(progress.tokens)
    return part


def advance_constraint(seq: Sequence, tokens: Iterable[int]) -> None:
    """The request's constraint after the committed tokens; dropped where it ends: the engine enforces its own."""
    if seq.matcher is None:
        return
    try:
        going_on = all(seq.matcher.advance(token) for token in tokens) and not seq.matcher.complete
    except FOREIGN as error:
        log.warning("%s: its constraint failed, plugins draft without it: %s", _name(seq), error)
        going_on = False
    if not going_on:
        seq.matcher = None


def _name(seq: Sequence) -> str:
    return seq.name or "a request"


def _cut(last: Part, checked: int) -> tuple[Draft | None, list[Piece]]:
    """The first tokens of a draft, and the pieces that they are of."""
    whole = last.draft
    if whole is None or checked >= len(whole):
        return whole, last.pieces
    pieces = [
        attrs.evolve(piece, draft=first_tokens(piece.draft, checked - piece.first))
        for piece in last.pieces
        if piece.first < checked
    ]
    return (first_tokens(whole, checked), pieces) if checked > 0 else (None, [])


def first_tokens(draft: Draft, n: int) -> Draft:
    """The first n tokens of a draft: every token's parent is among them."""
    if n >= len(draft):
        return draft
    probs = None if draft.probs is None else draft.probs[:n]
    parents = None if draft.parents is None else draft.parents[:n]
    return Draft(
        draft.ids[:n], draft.proposal, probs, parents, None if draft.confidence is None else draft.confidence[:n]
    )


def _verdict(draft: Draft | None, tokens: tuple[int, ...], name: str) -> Verdict:
    """The path that the engine accepted: all tokens but the last, which a drafted stop token may be."""
    path: list[int] = []
    for token in tokens[:-1]:
        node = None if draft is None else draft.children(path[-1] if path else -1).get(token)
        if node is None:
            raise UsageError(
                f"{name}: {len(tokens)} tokens were committed, and only the first {len(path)} were drafted",
                hint="call step with every token that was committed since the last call, and with checked if the "
                "draft was shortened",
            )
        path.append(node)
    return Verdict(path, tokens[-1])


def output(parts: Iterable[Part], reported: Iterable[Progress], needs: Needs) -> TargetOutput:
    """What plugins read of a step, rows of all parts one after the other. Raises UsageError for missing rows."""
    rows = at = 0
    both = list(zip(parts, reported, strict=True))
    for part, one in both:
        part.row, part.logits_row = rows, at
        part.first_draft_row = rows + len(part.pending)
        needed = len(part.pending) + (1 + max(part.verdict.path, default=-1) if part.verdict else 0)
        rows += _checked_rows(part, one, needs, needed)
        at += 1 + part.drafted if part.decides else 0
    return TargetOutput(
        logits=_logits(both, needs),
        hidden={i: torch.cat([one.hidden[i] for _, one in both]) for i in needs.hidden} if both else {},
        final=torch.cat([one.final for _, one in both if one.final is not None]) if needs.final and both else None,
    )


def _checked_rows(part: Part, progress: Progress, needs: Needs, needed: int) -> int:
    """Number of rows that were reported, equal for all hidden states. Raises UsageError if there are too few."""
    rows_by_name = {f"hidden[{i}]": progress.hidden.get(i) for i in needs.hidden} | (
        {"final": progress.final} if needs.final else {}
    )
    counts = {0 if rows is None else len(rows) for rows in rows_by_name.values()} or {needed}
    if len(counts) > 1 or min(counts) < needed:
        counts_given = ", ".join(f"{name}: {0 if rows is None else len(rows)}" for name, rows in rows_by_name.items())
        raise UsageError(
            f"{_name(part.seq)}: {needed} rows from position {part.start} on were needed, got {counts_given}",
            hint="give the hidden states that Host.needs names for every committed row",
        )
    return min(counts)


def _logits(both: Iterable[tuple[Part, Progress]], needs: Needs) -> Tensor:
    if not needs.logits:
        return torch.empty(0, 0)
    rows = []
    for part, reported in both:
        if not part.decides:
            continue
        if reported.logits is None or len(reported.logits) < 1 + part.drafted:
            raise UsageError(
                f"{_name(part.seq)}: {1 + part.drafted} rows of logits were needed, "
                f"got {0 if reported.logits is None else len(reported.logits)}",
                hint="give a row for the last committed token and one for each verified draft token",
            )
        rows.append(reported.logits[: 1 + part.drafted])
    return torch.cat(rows) if rows else torch.empty(0, 0)
