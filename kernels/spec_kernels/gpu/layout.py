"""A step as integers: what kernels read of its rows, in one small upload.

A row (``FIELDS`` integers): token; line of the page table; position by which it rotates; place where its key and value
go, below 0: nowhere; the last place that it attends to in its own path; the last place of its sequence; the first place
of drafts of a tree, beyond all places without one; the place of the first row of its sequence in the step.

Places of a path are numbered as if it were a chain: row r of a tree attends to place ``base + d`` at depth d of its
path, and finds it at ``base + paths[r, d]``. So a row of a tree sums like the same row of a chain, bit for bit.

A tile (``FIELDS`` integers): rows of one sequence that attend together: first row, rows, line, the lowest last place of
its rows, one more than the highest, the end of the sequence, and the first and the end of the pieces that it covers.
Drafts of a tree share tiles for the pieces before them; each has a tile of its own for the pieces of its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from spec_kernels.gpu.choice.draws import FIELDS as DRAW_FIELDS
from spec_kernels.gpu.choice.draws import write_texts
from spec_kernels.gpu.device import host_memory
from spec_kernels.gpu.recurrence import StateLayout, StateSize
from spec_kernels.gpu.tiles import PAGE
from spec_kernels.model.batch import ChosenRows, SequenceRows
from spec_kernels.ops.lineage import Lineage

FIELDS = 8
"""Integers of a row, and of a tile."""
TOKEN, LINE, POSITION, PLACE, SEEN, LAST, BASE, ANCHOR = range(FIELDS)
"""Fields of a row."""
Tile = tuple[int, int, int, int, int, int, int, int]
"""Integers of a tile."""
BEYOND = 1 << 30
"""A place that no sequence has."""
DEPTH = 64
"""Max depth of a tree."""


@dataclass(frozen=True)
class Size:
    """A bucket: what the memory and the launches of a step have room for.

    rows, tiles: of the description. pieces: of PAGE places. final, logits: requested rows of each heading, -1: all, in
    order. tree: some sequence has a tree. states: of a model with recurrent layers. chooses: a token is chosen from
    every row of logits. pairs: of a head, each with a position of its own; 0: a row has one position. added: layers add
    rows. mutual: rows of one sequence attend to each other in both directions.
    """

    rows: int
    tiles: int
    pieces: int
    final: int
    logits: int
    tree: bool
    states: StateSize | None = None
    chooses: bool = False
    pairs: int = 0
    added: bool = False
    mutual: bool = False

    @property
    def draws(self) -> int:
        """Rows of logits from which a token is chosen."""
        if not self.chooses:
            return 0
        return next((count for count in (self.logits, self.final) if count >= 0), self.rows)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows of a batch. sequences: theirs, numbered from the first row of the chunk.

    final, logits: requested rows, numbered likewise, None: all of them. lineage: of a model with recurrent layers.
    recorded: rows whose inputs are recorded. choices: of its rows of logits; None: nothing is chosen.
    """

    first: int
    rows: int
    sequences: Sequence[SequenceRows]
    final: list[int] | None
    logits: list[int] | None
    lineage: Lineage | None = None
    recorded: Sequence[int] = ()
    choices: Sequence[ChosenRows] | None = None


class Layout:
    """The description of one bucket, in pinned memory and on the device. states: of its recurrent part."""

    def __init__(self, size: Size, device: torch.device) -> None:
        self.size = size
        depth = DEPTH if size.tree else 0
        fields = (size.rows, FIELDS), (size.tiles, FIELDS), (size.draws, DRAW_FIELDS)  # draws begin at 8 bytes
        shapes = *fields, (size.rows, 1), (size.rows, 1), (size.rows, depth), (size.rows, size.pairs)
        total = sum(n * m for n, m in shapes)
        self.host = host_memory(total, torch.int32, device)
        self.device = torch.zeros(total, dtype=torch.int32, device=device)
        self.plan: Any = None  # that wrote the description, see ``plans``
        self.states = None if size.states is None else StateLayout(size.rows, size.states, device)
        self._uploaded = torch.cuda.Event() if device.type == "cuda" else None
        self._rows, self._tiles, self._draws, *picked = _split(self.host.numpy(), shapes)
        self._final, self._logits, self._paths, self._positions = picked
        self.rows, self.tiles, self.draws, *picked = _split(self.device, shapes)
        self.final, self.logits, self.paths, self.positions = picked

    def fill(
        self,
        chunk: Chunk,
        tokens: np.ndarray,
        positions: np.ndarray,
        tiles: Sequence[Tile],
        offsets: np.ndarray | None = None,
    ) -> None:
        """Describe a chunk. tokens: int64 of its rows. positions: int64 [rows], or [rows, pairs]. offsets: of places of
        states."""
        self.plan = None
        rows, _, draws = self.begin_columns()
        count = chunk.rows
        rows[count:] = 0
        rows[count:, PLACE] = -1
        rows[:count, TOKEN] = tokens
        (self._positions if self.size.pairs else rows[:, POSITION])[:count] = positions
        for s in chunk.sequences:
            self._describe(s)
        self._tiles[len(tiles) :] = 0
        if tiles:
            self._tiles[: len(tiles)] = tiles
        _pick(self._final, chunk.final)
        # Rows of logits are selected from the rows of ``final``.
        _pick(self._logits, places_among(chunk.final, chunk.logits))
        if self.size.chooses:
            write_texts(draws, chunk.choices or ())
        if self.states is not None:
            self.states.fill(chunk.lineage, chunk.recorded, offsets)

    def begin_columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, tiles and draws of the description on the host, when the last upload has read them."""
        if self._uploaded is not None:
            self._uploaded.synchronize()
        return self._rows, self._tiles, self._draws

    def _describe(self, s: SequenceRows) -> None:
        fields = self._rows[s.first : s.first + s.rows]
        fields[:, LINE] = 0 if s.cache is None else s.cache.line
        fields[:, SEEN] = last_places(s)
        fields[:, PLACE] = -1 if s.cache is None else np.arange(s.start, s.end)
        fields[:, LAST], fields[:, BASE], fields[:, ANCHOR] = s.end - 1, BEYOND, s.start
        if s.parents is not None:
            fields[s.pending :, BASE] = s.start + s.pending
            for i, path in enumerate(tree_paths(s.parents), s.first + s.pending):
                self._paths[i, : len(path)] = path

    def upload(self) -> None:
        """Copy the description to the device."""
        for part in (self, self.states):
            if part is not None:
                part.device.copy_(part.host, non_blocking=True)
        if self._uploaded is not None:
            self._uploaded.record()


def _split(memory: Any, shapes: Sequence[tuple[int, int]]) -> list[Any]:
    ends = np.cumsum([n * m for n, m in shapes]).tolist()
    return [memory[end - n * m : end].reshape(n, m) for end, (n, m) in zip(ends, shapes, strict=True)]


def _pick(to: np.ndarray, rows: list[int] | None) -> None:
    if rows is not None:
        to[: len(rows), 0], to[len(rows) :] = rows, 0


def places_among(final: list[int] | None, logits: list[int] | None) -> list[int] | None:
    """Places of the requested rows of logits among the final ones."""
    if final is None or logits is None:
        return logits
    return [final.index(row) for row in logits] if final != logits else list(range(len(logits)))


def tree_paths(parents: Sequence[int]) -> list[list[int]]:
    """Drafts of the path of each draft, its own last. Raises ValueError beyond DEPTH."""
    paths: list[list[int]] = []
    for i, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else ()), i])
        if len(paths[-1]) > DEPTH:
            raise ValueError(f"a tree has depth {len(paths[-1])}, max {DEPTH}")
    return paths


def last_places(s: SequenceRows) -> np.ndarray:
    """int64 [rows]: the last place that each row of a sequence attends to in its own path."""
    places = np.arange(s.start, s.end)
    if s.parents is not None:
        depths: list[int] = []
        for parent in s.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        places[s.pending :] = np.add(depths, s.start + s.pending)
    return places


def sequence_tiles(s: SequenceRows, height: int) -> list[Tile]:
    """The tiles of a sequence, of up to ``height`` rows each."""
    if s.cache is None:
        return []
    places, chain = last_places(s).tolist(), s.pending
    tile = lambda at, count, begin, end: (
        s.first + at, count, s.cache.line, min(places[at : at + count]), max(places[at : at + count]) + 1, s.end,
        begin, end,
    )  # fmt: skip
    tiles = [tile(i, min(height, chain - i), 0, s.end // PAGE + 1) for i in range(0, chain, height)]
    if s.parents is None:
        return tiles
    shared = (s.start + chain) // PAGE
    if shared:
        tiles += [tile(i, min(height, s.rows - i), 0, shared) for i in range(chain, s.rows, height)]
    return tiles + [tile(i, 1, shared, places[i] // PAGE + 1) for i in range(chain, s.rows)]
