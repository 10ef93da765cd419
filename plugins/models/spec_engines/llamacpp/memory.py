"""The memory of a slot: a context of llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from spec_core.errors import TargetError
from spec_engines.llamacpp.binding import EMBEDDING, FINAL, ROWS, Context, Owners
from spec_engines.llamacpp.paths import Paths


class LlamaCppRows:
    """Rows of one sequence.

    make: a new context; with True, one whose hidden states can be read. length: rows that it holds. before: recurrent
    state after the pending rows, where llama.cpp cannot roll it back. paths: sequences of llama.cpp that hold the
    committed rows, one for each leaf that a draft had. tree: the paths of a draft that branches, until it is decided.
    """

    def __init__(self, make: Callable[[bool], Context]) -> None:
        self.make, self.context, self.length, self.paths = make, make(False), 0, 1
        self.before: bytes | None = None
        self.tree: Paths | None = None

    def tapped_context(self) -> Context:
        """The context, replaced by one whose hidden states can be read if it is not."""
        if self.context.taps is None:
            old, self.context = self.context, self.make(True)
            if self.length:
                self.context.put(old.copy_state(partial=False), partial=False)
            self.paths = 1
        return self.context

    def cut(self, length: int) -> None:
        """Drop rows from position ``length`` on. Raises TargetError if recurrent state cannot be rolled back so far."""
        if length < self.length:
            if not self.context.cut(length):
                raise TargetError(
                    f"llama.cpp cannot roll its state back from position {self.length} to {length}",
                    hint="report it; drafts of at most 16 tokens avoid it (-o draft_max=16)",
                )
            self.length = length

    def restore(self, state: bytes | None, length: int) -> None:
        """Restore a state of recurrent layers after ``length`` rows; None is the beginning."""
        if state is None:
            self.context.cut(0)
        else:
            self.context.put(state)
            self.context.cut(length)
        self.length = length

    def evaluate(
        self, tokens: Sequence[int], embeds: Mapping[int, Tensor], outputs: Sequence[bool], paths: Paths | None = None
    ) -> Tensor:
        """Append rows; logits [W, V] of the wanted ones, valid until the next call.

        embeds: {index: [D]} of rows given as embeddings. paths: of a draft that branches, whose tokens come last.
        """
        positions, owners = self._places(len(tokens), paths)
        runs, pieces = _runs(len(tokens), embeds), []
        for first, last in runs:
            rows = torch.stack([embeds[i] for i in range(first, last)]) if first in embeds else tokens[first:last]
            run_owners = None if owners is None else owners[first:last]
            logits = self.context.decode(rows, positions[first:last], outputs[first:last], run_owners)
            pieces.append(logits if len(runs) == 1 else logits.clone())
            self.length += last - first
        return join_rows(pieces)

    def _places(self, count: int, paths: Paths | None) -> tuple[Sequence[int], Owners]:
        """Positions of rows, and the sequences that they belong to: rows of text to the sequences of all paths."""
        if paths is None:
            return range(self.length, self.length + count), [range(self.paths)] * count if self.paths > 1 else None
        self._prepare(paths.count)
        text = range(self.length, self.length + count - len(paths.depths))
        positions = [*text, *(text.stop - 1 + depth for depth in paths.depths)]
        return positions, [*[range(self.paths)] * len(text), *paths.owners]

    def _prepare(self, paths: int) -> None:
        """Let at least ``paths`` sequences hold the committed rows."""
        self.context.share(0, range(self.paths, paths))
        self.paths = max(self.paths, paths)

    def keep(self, end: int, count: int, path: int) -> None:
        """Keep the first ``count`` tokens of a path of a draft that branches and follows position ``end``."""
        self.context.share(path, [other for other in range(self.paths) if other != path], end)
        self.context.cut(end + count)
        self.length = end + count


def join_rows(pieces: list[Tensor]) -> Tensor:
    """Rows one after the other; a single piece is not copied."""
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _runs(count: int, embeds: Mapping[int, Tensor]) -> list[tuple[int, int]]:
    """Ranges of rows for one call each: a call has tokens or embeddings, and a max number of rows."""
    if not embeds and 0 < count <= ROWS:
        return [(0, count)]
    edges = [0, *(i for i in range(1, count) if (i in embeds) != (i - 1 in embeds)), count]
    return [(start, min(start + ROWS, last)) for first, last in pairwise(edges) for start in range(first, last, ROWS)]


def names_of(i: int, layers: int) -> tuple[str, ...]:
    """Names of the tensors that may hold hidden state i, or with i = layers + 1 the one after the final norm."""
    if i > layers:
        return (FINAL,)
    return EMBEDDING if i == 0 else (f"l_out-{i - 1}",)
