"""The target's choice at every row, and the path of a draft that follows these choices. For rules.

The token chosen at output position t depends only on committed text, seed and t, and, under a rule with private noise,
on the number of the request. Shared noise: Daliri, Musco, Suresh, 2408.07978.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, chain

from torch import Tensor

from spec_core.contract.layout import has_cuts, plain_rows
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft, Verdict
from spec_core.contract.verified_step import AcceptStep
from spec_core.sampling.choose import draw_token, finite_choice, largest_logits
from spec_core.sampling.device import Chooser, device_chooser
from spec_core.sampling.draws import Draw, pack_columns, pack_draws
from spec_core.toolkit.transfer import rows_on_host

Choose = Callable[[int], int]
"""Row -> token: row 0 follows committed text, row 1 + j follows draft j."""
Largest = tuple[list[int], list[float]]
"""Tokens of some rows, and their largest logits."""


def walk_draft(draft: Draft | None, choice: Choose) -> Verdict:
    """Follow the choices down the draft. choice: row -> token; row 0 follows committed text, row 1+j draft j."""
    path: list[int] = []
    token, node = choice(0), -1
    while draft is not None and (child := draft.children(node).get(token)) is not None:
        path.append(child)
        token, node = choice(1 + child), child
    return Verdict(tuple(path), token)


def choosers(step: AcceptStep) -> list[tuple[Sequence, Choose]]:
    """The choice function of each undecided sequence.

    Where a chooser is installed for the device of the logits, all rows are chosen there, by the target's own forward or
    in one call, with one transfer of some bytes per row. It leaves out sequences that sample with top-k, top-p or
    min-p: their rows are copied to the host, all together, and chosen one by one when a path reaches them.
    Without a chooser, greedy sequences share one argmax and its transfer, and the rows of others are copied.
    """
    assert step.output is not None
    undecided = list(step.undecided)
    logits = step.output.logits
    chooser = device_chooser(logits)
    if chooser is None:
        plain = [seq for seq in undecided if seq.sampling.greedy and step.part(seq).masks is None]
        best = largest_logits(logits) if plain else ([], [])
        choices = {seq: choice_from(best, step.part(seq).logits_row) for seq in plain}
    else:
        choices = choices_of_target(step, undecided)
        choices |= device_choices(step, [seq for seq in undecided if not (seq in choices or has_cuts(seq))], chooser)
    rest = [seq for seq in undecided if seq not in choices]
    choices |= {seq: choice_on_host(step, seq, rows) for seq, rows in rows_on_host(step, rest).items()}
    return [(seq, choices[seq]) for seq in undecided]


def choices_of_target(step: AcceptStep, seqs: Iterable[Sequence]) -> dict[Sequence, Choose]:
    """The choice function of sequences whose tokens the target's forward has chosen."""
    assert step.batch is not None
    assert step.output is not None
    rows, read = step.batch.choices, step.output.choices
    if read is None:
        return {}
    best = read()
    return {seq: choice_from(best, rows[seq].row) for seq in seqs if seq in rows}


def device_choices(step: AcceptStep, seqs: Iterable[Sequence], chooser: Chooser) -> dict[Sequence, Choose]:
    """The choice function of each of these sequences, from one call of a chooser for all their rows."""
    assert step.output is not None
    logits, seqs = step.output.logits, list(seqs)
    if not seqs:
        return {}
    parts = [step.part(seq) for seq in seqs]
    if all(not seq.sampling.adjusts and part.masks is None for seq, part in zip(seqs, parts, strict=True)):
        rows = [max(0, min(1 + part.drafted, len(logits) - part.logits_row)) for part in parts]
        sources = [step.choosing(seq) for seq in seqs]
        spans = [plain_rows(*of_text) for of_text in zip(parts, sources, rows, strict=True)]
        packed, counts = pack_columns(spans, logits.shape[1]), [len(span.depths) for span in spans]
    else:
        draws = [row_draws(step, seq, len(logits)) for seq in seqs]
        packed, counts = pack_draws(list(chain(*draws)), logits.shape[1]), [len(own) for own in draws]
    ends = list(accumulate(counts))
    if not ends[-1]:
        return {}
    tokens, values = (column.tolist() for column in chooser(logits, packed))
    return {
        seq: choice_from((tokens[end - count : end], values[end - count : end]), 0)
        for seq, count, end in zip(seqs, counts, ends, strict=True)
    }


def row_draws(step: AcceptStep, seq: Sequence, rows: int) -> list[Draw]:
    """The choices at all rows of a sequence, without rows that the target did not return. rows: of all logits."""
    part, source = step.part(seq), step.choosing(seq)
    draft, count = part.draft, min(1 + part.drafted, rows - part.logits_row)
    depths = (0,) if draft is None else (0, *draft.depths)
    draws = []
    for row in range(count):
        path = [draft.ids[i] for i in draft.ancestry(row - 1)] if draft and row and seq.sampling.adjusts else []
        history = seq.tokens, seq.prompt_len, path
        draws.append(
            Draw(
                part.logits_row + row,
                seq.sampling,
                source,
                seq.output_position + depths[row],
                history,
                step.mask(seq, row),
            )
        )
    return draws


def choice_from(best: Largest, first: int) -> Choose:
    """A choice function that reads tokens which were already chosen. first: place of row 0."""
    return lambda row: finite_choice(*best, first + row)


def choice_on_host(step: AcceptStep, seq: Sequence, rows: Tensor) -> Choose:
    """A choice function that evaluates a row only when the path reaches it. rows: [1+K, V], the sequence's logits."""
    draft, source = step.part(seq).draft, step.choosing(seq)

    def choice(row: int) -> int:
        depth = draft.depths[row - 1] if row and draft else 0
        history = step.history(seq, row), seq.prompt_len, ()
        token, logit, _ = draw_token(
            rows[row], seq.sampling, source, seq.output_position + depth, history, step.mask(seq, row)
        )
        return finite_choice([token], [logit])

    return choice
