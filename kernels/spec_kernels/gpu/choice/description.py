"""The integers that describe the choices of a step, as kernels read them: one upload per step."""

from __future__ import annotations

from typing import Protocol

import attrs
import numpy as np

from spec_kernels.gpu.choice.draws import COPY, COUNTER, FIELDS, NONE, ROW, SEED, TEMPERATURE
from spec_kernels.gpu.tiles import power_of_two

CHANGE_FIELDS = 8
"""Integers of a changed logit: bias, repetition, penalty (float64), copy, token."""
COPY_FIELDS = 2
"""Integers of an adjusted copy of a row: the row, and its mask or -1."""
ALIGNMENT = 4
"""Integers: sections begin at multiples of 16 bytes."""


class Draws(Protocol):
    """N choices from rows of logits [R, V].

    rows: [N] int64    temperatures: [N] float64    seeds: [N] uint64
    counters: [N, 3] uint32: output position, stream, domain
    masked: [M] int64, the draws with a mask    masks: [M, ceil(V / 32)] uint32, bits of tokens that may be chosen
    changed: [C] int64, ascending, the draw whose logit changes    ids: [C] int64, the token
    terms: [C, 3] float64: bias, factor of repetition, penalty
    """

    rows: np.ndarray
    temperatures: np.ndarray
    seeds: np.ndarray
    counters: np.ndarray
    masked: np.ndarray
    masks: np.ndarray
    changed: np.ndarray
    ids: np.ndarray
    terms: np.ndarray


@attrs.frozen(eq=False)
class Description:
    """Sections of int32. draws: [B, FIELDS], B a power of two; the row of draws beyond N is -1.

    copies: [A, COPY_FIELDS], rows that are copied because a logit changes. changes: [C, CHANGE_FIELDS].
    masks: [M, ceil(V / 32)].
    """

    draws: np.ndarray
    copies: np.ndarray
    changes: np.ndarray
    masks: np.ndarray

    @property
    def offsets(self) -> list[int]:
        """Beginning of each section, and the end of the last one, in integers. Draws begin at 0."""
        offsets = [0]
        for section in self._sections:
            offsets.append(offsets[-1] + -(-section.size // ALIGNMENT) * ALIGNMENT)
        return offsets

    @property
    def _sections(self) -> tuple[np.ndarray, ...]:
        return self.draws, self.copies, self.changes, self.masks

    def write(self, integers: np.ndarray, offsets: list[int]) -> None:
        """Write all sections. integers: [at least offsets[-1]] int32"""
        for offset, section in zip(offsets, self._sections, strict=False):
            if section.size:
                integers[offset : offset + section.size] = section.reshape(-1)


NO_COPIES, NO_CHANGES = np.empty((0, COPY_FIELDS), np.int32), np.empty((0, CHANGE_FIELDS), np.int32)


def describe(draws: Draws) -> Description:
    """Describe N draws, one or more."""
    if not len(draws.masked) and not len(draws.changed):
        return Description(_describe_draws(draws, NONE), NO_COPIES, NO_CHANGES, draws.masks.view(np.int32))
    copy_of = _number_copies(draws)
    return Description(
        draws=_describe_draws(draws, copy_of),
        copies=_describe_copies(draws, copy_of),
        changes=_describe_changes(draws, copy_of),
        masks=draws.masks.view(np.int32),
    )


def _number_copies(draws: Draws) -> np.ndarray:
    """[N] the copy that each draw reads instead of its row, NONE if nothing changes."""
    adjusted = np.zeros(len(draws.rows), np.bool_)
    adjusted[draws.masked] = adjusted[draws.changed] = True
    return np.where(adjusted, adjusted.cumsum() - 1, NONE).astype(np.int32)


def _describe_draws(draws: Draws, copy_of: np.ndarray | int) -> np.ndarray:
    count = len(draws.rows)
    fields = np.zeros((power_of_two(count), FIELDS), np.int32)
    fields[:, ROW] = fields[:, COPY] = NONE
    fields[:count, TEMPERATURE:SEED] = draws.temperatures[:, None].view(np.int32)
    fields[:count, SEED:COUNTER] = draws.seeds[:, None].view(np.int32)
    fields[:count, COUNTER:ROW] = draws.counters.view(np.int32)
    fields[:count, ROW] = draws.rows
    fields[:count, COPY] = copy_of
    return fields


def _describe_copies(draws: Draws, copy_of: np.ndarray) -> np.ndarray:
    rows = draws.rows[copy_of >= 0]
    fields = np.full((len(rows), COPY_FIELDS), NONE, np.int32)
    fields[:, 0] = rows
    fields[copy_of[draws.masked], 1] = np.arange(len(draws.masked))
    return fields


def _describe_changes(draws: Draws, copy_of: np.ndarray) -> np.ndarray:
    fields = np.zeros((len(draws.ids), CHANGE_FIELDS), np.int32)
    fields[:, :6] = np.ascontiguousarray(draws.terms).view(np.int32)
    fields[:, 6] = copy_of[draws.changed]
    fields[:, 7] = draws.ids
    return fields
