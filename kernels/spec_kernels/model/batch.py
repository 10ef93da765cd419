"""The input of a forward: rows of several sequences, what they continue, and the requested outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from spec_kernels.model.recurrence import Recurrence

_NOTHING_MOVES = nullcontext()


def numbers(some: Sequence[int], device: Any = "cpu") -> Tensor:
    """int64 [n], in a fifth of the time of torch.tensor for a list."""
    tensor = torch.from_numpy(np.array(some, dtype=np.int64))
    return tensor if device == "cpu" else tensor.to(device)


@dataclass(eq=False, slots=True)  # frozen fields take three times as long to set, in every step
class SequenceRows:
    """One sequence's rows of a batch: a chain of pending rows, then drafts.

    cache: of the sequence, made by the executor, with room for the rows
    first: their first row in the batch    start: the cache position of that row; all rows attend to earlier positions
    parents: of the drafts, -1 is the last pending row; None: every row follows the one before
    mutual: the rows attend to each other in both directions
    held: rows of a tree that lie in the cache before ``start`` and are not in the batch: all its rows are drafts then,
        ``parents`` is of the whole tree, held rows first, and -1 is the row before it. Attention alone, on a CPU
    """

    cache: Any
    first: int
    rows: int
    start: int
    parents: Sequence[int] | None = None
    mutual: bool = False
    held: int = 0

    @property
    def base(self) -> int:
        """Cache position of the first row, a held one too."""
        return self.start - self.held

    @property
    def end(self) -> int:
        return self.start + self.rows

    @property
    def pending(self) -> int:
        return self.rows if self.parents is None else self.held + self.rows - len(self.parents)

    def path(self, row: int) -> list[int]:
        """Cache positions from ``base`` on to which row ``row`` of the sequence attends, in order, its own last."""
        if row < self.pending or self.parents is None:
            return list(range(self.base, self.start + row + 1))
        path, node = [], self.held + row - self.pending
        while node >= 0:
            path.append(self.base + self.pending + node)
            node = self.parents[node]
        return [*range(self.base, self.base + self.pending), *reversed(path)]


class ChosenRows(Protocol):
    """Choices at neighbouring rows of logits of one text, without masks, biases, penalties and cuts.

    row: the first, of the rows of logits. sampling: has the temperature. source: seed, stream and domain of the noise.
    t: output position of the first. depths: of each row, beyond ``t``.
    """

    @property
    def row(self) -> int: ...
    @property
    def sampling(self) -> Any: ...
    @property
    def source(self) -> tuple[int, int, int]: ...
    @property
    def t(self) -> int: ...
    @property
    def depths(self) -> Sequence[int]: ...


@dataclass(eq=False, slots=True)
class Choices:
    """Choices that an executor may make with a forward.

    texts: of each text. read: set by an executor that makes them: waits, and returns a token and the largest logit for
    every row of logits.
    """

    texts: Sequence[ChosenRows]
    read: Callable[[], tuple[list[int], list[float]]] | None = None


@dataclass(eq=False, slots=True)
class ForwardBatch:
    """R rows.

    tokens: int64 [R], None if the model has no embedding
    positions: int64 [R]; or [R, P], one for each of the P pairs of a head that rotate
    sequences: together they cover rows 0 to R - 1, in order
    given: {row: [D]} embeddings in place of tokens    inputs: {name: [R, width]}
    logits, final: rows for which they are requested, ascending; ``logits`` is a subset of ``final``. None means all.
    added: {row: [D]} for each index of ``AddRows``
    taps: names of other requested outputs    recurrence: states and lineage of the same rows, for recurrent layers
    choices: at rows of logits
    """

    tokens: Tensor | None
    positions: Tensor
    sequences: Sequence[SequenceRows]
    given: Mapping[int, Tensor] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    logits: Sequence[int] | None = None
    final: Sequence[int] | None = None
    taps: Collection[str] = ("logits",)
    recurrence: Recurrence | None = None
    added: Sequence[Mapping[int, Tensor]] = ()
    choices: Choices | None = None

    def steady(self) -> AbstractContextManager[None]:
        """Lock that the executor holds during a forward: shared states are not moved meanwhile."""
        return _NOTHING_MOVES if self.recurrence is None else self.recurrence.steady()


def embedding(vector: Tensor, width: int) -> Tensor:
    """A copy of an embedding; zeros [width] if its width differs, which the model cannot read."""
    return vector.clone() if tuple(vector.shape) == (width,) else vector.new_zeros(width)


def write_rows(vectors: Mapping[int, Tensor], rows: Tensor) -> None:
    """Write vectors [D] to their rows. rows: [R, D]"""
    for row, vector in vectors.items():
        rows[row] = vector.to(rows)


def check_given(embeds: Mapping[int, Tensor], width: int) -> None:
    """Raise ValueError for an embedding that is not [width]."""
    for row, vector in embeds.items():
        if tuple(vector.shape) != (width,):
            raise ValueError(f"the embedding of row {row} has shape {list(vector.shape)}, [{width}] is needed")
