"""Lays out the rows of a step as a batch."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spec_core.contract.batch import Batch, Part
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Draft, Needs
from spec_core.sampling.draws import PlainRows
from spec_core.sampling.reference import NoiseKey

INT64 = np.dtype(np.int64)


def lay_out_batch(step: Step, needs: Needs, device: str) -> Batch:
    """Lay out the rows of all parts; tokens and positions take one transfer to a device."""
    tokens: list[int] = []
    positions: list[int] = []
    embeds: dict[int, Tensor] = {}
    at = 0
    for part in step.parts:
        part.row, end = len(tokens), part.end
        if part.seq.embeds:
            embeds.update(_embedded_rows(part))
        tokens += hide_numbers(part.seq, part.pending)
        positions += range(part.start, end)
        part.first_draft_row = len(tokens)
        part.logits_row = part.first_draft_row - 1 if needs.all_logits else at
        at += part.decides
        if part.draft is not None:
            if not part.pending:
                part.first_draft_row -= part.held
                part.logits_row -= part.held + (0 if needs.all_logits else 1)
                at -= part.decides
            tokens += part.draft.ids[part.held :]
            positions += _draft_positions(end, part.draft)[part.held :]
            at += part.drafted - part.held
        if part.probes:
            positions += _probe_positions(part)
            at += _lay_out_probes(part, tokens, embeds)
    choices = plain_choices(step) if needs.choices and step.target.info.chooses else {}
    if device == "cpu":
        return Batch(_tensor(tokens), _tensor(positions), tuple(step.parts), embeds, choices)
    both = _tensor([tokens, positions]).to(device, non_blocking=True)
    return Batch(both[0], both[1], tuple(step.parts), embeds, choices)


def plain_choices(step: Step) -> Mapping[Sequence, PlainRows]:
    """The choices of sequences whose rows of logits are chosen from as they are, where a verdict follows."""
    return {
        part.seq: plain_rows(part, step.choosing(part.seq), 1 + part.drafted)
        for part in step.parts
        if part.decides and not (part.seq.is_held or part.seq.sampling.adjusts or has_cuts(part.seq))
    }


def plain_rows(part: Part, source: NoiseKey, count: int) -> PlainRows:
    """The choices at the first rows of a sequence's logits, without masks, biases and penalties."""
    depths = (0,) if part.draft is None else (0, *part.draft.depths)
    return PlainRows(part.logits_row, part.seq.sampling, source, part.seq.output_position, depths[:count])


def has_cuts(seq: Sequence) -> bool:
    """Whether top-k, top-p or min-p may exclude a token."""
    return seq.sampling.truncates and seq.sampling.temperature > 0


def hide_numbers(seq: Sequence, tokens: list[int]) -> list[int]:
    """Tokens with -1 in place of the numbers of embeddings."""
    return [max(token, -1) for token in tokens] if seq.embeds else tokens


def _embedded_rows(part: Part) -> dict[int, Tensor]:
    """Batch rows of pending positions that are given as embeddings."""
    embeds = part.seq.embeds.items()
    return {part.row + at - part.start: row for at, row in embeds if part.start <= at < part.end}


def _draft_positions(end: int, draft: Draft) -> Items[int]:
    """Positions of draft tokens after committed text up to ``end``."""
    if draft.parents is None:
        return range(end, end + len(draft.ids))
    return [end - 1 + depth for depth in draft.depths]


def _lay_out_probes(part: Part, tokens: list[int], embeds: dict[int, Tensor]) -> int:
    """Append the probes of a part; returns their number."""
    count = 0
    for piece in part.probes:
        embeds.update({len(tokens) + i: vector for i, vector in piece.embeds.items()})
        tokens += piece.ids
        count += len(piece.ids)
    return count


def _probe_positions(part: Part) -> list[int]:
    """Positions of probes: that of the last pending row plus their depth."""
    depths: list[int] = []
    for parent in part.branch_parents or ():
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return [part.end - 1 + depth for depth in depths[part.drafted :]]


def _tensor(numbers: list[Any]) -> Tensor:
    """A tensor from a list, in half the time of torch.tensor."""
    return torch.from_numpy(np.array(numbers, dtype=INT64))
