"""A model on the native program: what a forward is asked becomes the arguments of one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model import sizes
from spec_kernels.model.batch import Batch, SequenceRows, check_given
from spec_kernels.model.ops import Input, Model, embedded
from spec_kernels.model.readers import ReadersLock
from spec_kernels.model.recurrence import Recurrence
from spec_kernels.model.rotary import cos_and_sin
from spec_kernels.model.source import Source
from spec_kernels.model.states import StatePool
from spec_kernels.native import ACTIVATIONS, instruction_sets, limits, module
from spec_kernels.native.cache import NativeCache
from spec_kernels.native.lower import Lowering, recurrence
from spec_kernels.native.weights import TILE, Arena, Tiles


@dataclass(frozen=True)
class Options:
    """activations: bits of rows in products with quantised weights, a name in ``ACTIVATIONS``. cache: a type in
    ``CACHES``. requantise: weights that are floats become Q8_0. isa: an instruction set; None is the best."""

    activations: str = "int15"
    cache: str = "float16"
    requantise: bool = False
    isa: str | None = None


class Native:
    """Executes a description on the CPU; results are float32. A row has the same bits in every batch and chunk, on
    every number of threads and instruction set."""

    def __init__(
        self, model: Model, source: Source, options: Options | None = None, lent: Mapping[Any, Tiles] | None = None
    ) -> None:
        """lent: weights of another executor that are not read again.

        Raises ValueError for a model whose sizes do not fit each other, or that is too large: C does not check them.
        """
        sizes.check(model)
        limits.check(model)
        self.model, self.source, self.options = model, source, options or Options()
        self.arena = Arena(model, source, self.options.requantise, lent)
        lowering = Lowering(
            model, self.arena, ACTIVATIONS[self.options.activations], self.options.cache, self.options.isa
        )
        self.program, self.taps, self.widths = lowering.program, lowering.taps, lowering.widths
        self.inputs = lowering.inputs
        self._logits = self.taps.index("logits") if "logits" in self.taps else -1
        self._always = tuple(lowering.bound)  # the program writes there
        self._at = {
            name: (i, width, -(-width // TILE) * TILE if name in lowering.bound else width)
            for i, (name, width) in enumerate(zip(self.taps, self.widths, strict=True))
        }
        self._embedded = embedded(model)
        self._input_widths = [op.width for op in model.ops if isinstance(op, Input)]
        self._shape = None if model.heads is None else lowering.shape
        self._rotary_positions, self._threads, self._rotary_lock = 0, 1, ReadersLock()
        self._rotary: list[Tensor] = []  # all that ever were: another thread may be reading them

    @property
    def isa(self) -> str:
        return self.options.isa or instruction_sets()[0]

    def another(self, model: Model, source: Source) -> Native:
        """An executor of a model that shares weights with this one, where their names are the same."""
        return Native(model, source, self.options, self.arena.tiles)

    def cache(self, length: int) -> NativeCache | None:
        """Memory of one sequence for so many places; None where nothing attends."""
        return None if self._shape is None else NativeCache(self._shape, length)

    def run(self, batch: Batch) -> dict[str, Tensor]:
        """What was wanted, by name: taps [R, width], those behind a ``Pick`` with the rows that were picked."""
        found, places = self._outputs(batch)
        with batch.steady():
            arguments, block, alive = self._arguments(batch, places)
            self.program.run(*arguments)
        del alive
        if block is not None:
            batch.recurrence.record_as(block)
        return found

    def draft(
        self,
        batch: Batch,
        most: int,
        least: float,
        estimate: float,
        stops: Sequence[int],
        state: str | None = None,
        ids: Tensor | None = None,
    ) -> tuple[list[int], list[float]]:
        """A greedy draft behind the rows of one sequence, one row of logits wanted: tokens, and how likely each was.

        It ends after ``most`` tokens, with one of ``stops``, or where the product of chances, each times ``estimate``,
        falls below ``least``. The cache has room for ``most`` - 1 places more. state: the tap that the next forward
        takes as its only input. ids: int64, the token of every row of logits; None: their own numbers.
        """
        return self._draft(batch, (most, least, estimate, tuple(stops)), state, ids, None, 1)[:2]

    def draw(
        self,
        batch: Batch,
        most: int,
        least: float,
        estimate: float,
        stops: Sequence[int],
        chooser: Any,
        keep: bool = False,
        state: str | None = None,
        ids: Tensor | None = None,
    ) -> tuple[list[int], list[float], Tensor | None]:
        """The same with tokens and chances of a chooser's: a capsule of ``spec_chooser``, as chooser.h says it.

        keep: the third is [n, V], the rows of logits that they were chosen from; else None.
        """
        limits = most, least, estimate, tuple(stops)
        tokens, chances, rows = self._draft(batch, limits, state, ids, chooser, most if keep else 1)
        return tokens, chances, rows[: len(tokens)] if keep else None

    def _draft(
        self, batch: Batch, limits: tuple[Any, ...], state: str | None, ids: Tensor | None, chooser: Any, kept: int
    ) -> tuple[list[int], list[float], Tensor]:
        """limits: most, least, estimate, stops. kept: rows of logits that stay, 1 is the last."""
        found, places = self._outputs(batch, kept)
        self._extend_rotary(batch.sequences[0].end + limits[0] + 1)
        arguments, _, alive = self._arguments(batch, places)
        at = -1 if state is None else self.taps.index(state)
        tokens = None if ids is None else (ids.data_ptr(), len(ids))
        drafted = self.program.draft(*arguments, *limits, self._logits, at, tokens, chooser, kept)
        del alive
        return *drafted, found["logits"]

    # arguments

    def _outputs(self, batch: Batch, kept: int = 0) -> tuple[dict[str, Tensor], tuple[Any, ...]]:
        """Memory for what is wanted: tensors by name, and (address, stride) or None of every tap.

        kept: rows of logits at least.
        """
        found: dict[str, Tensor] = {}
        places: list[tuple[int, int] | None] = [None] * len(self.taps)
        rows = batch.positions.numel()
        for name in (*batch.taps, *self._always):
            if name in found or name not in self._at:
                continue
            i, width, stride = self._at[name]
            count = max(_count(batch, name, rows), kept if i == self._logits else 0)
            # A row at least: an empty tensor has no address.
            memory = torch.empty(count or 1, stride)
            places[i] = memory.data_ptr(), stride
            found[name] = memory if stride == width and count else memory[:count, :width]
        return found, tuple(places)

    def _arguments(self, batch: Batch, places: tuple[Any, ...]) -> tuple[tuple[Any, ...], Block | None, Any]:
        """What C takes, the memory of a record, and what has to stay alive for as long."""
        threads = torch.get_num_threads()
        if threads != self._threads:
            self.program.threads(threads)
            self._threads = threads
        sequences = tuple(map(_sequence, batch.sequences))
        self._extend_rotary(max(s.end for s in batch.sequences) + 1)
        kept = self._given(batch) if batch.given else ()
        given = tuple((row, at.data_ptr()) for row, at in zip(batch.given, kept, strict=True)) if kept else ()
        inputs, places_in = self._inputs(batch) if self.inputs else ((), ())
        states, block = (None, None) if batch.recurrence is None else self._states(batch.recurrence)
        tokens = 0 if batch.tokens is None else batch.tokens.data_ptr()
        headings = (batch.final, batch.logits)
        where = (tokens, batch.positions.data_ptr(), batch.positions.numel())
        return (*where, sequences, given, places_in, headings, places, states), block, (kept, inputs)

    def _given(self, batch: Batch) -> list[Tensor]:
        check_given(batch.given, self._embedded)
        return [row.to(dtype=torch.float32).contiguous() for row in batch.given.values()]

    def _inputs(self, batch: Batch) -> tuple[list[Tensor], tuple[tuple[int, int], ...]]:
        """Matrices whose rows lie in one piece, and (address, stride) of each."""
        inputs = [_in_rows(batch.inputs[name]) for name in self.inputs]
        for name, width, m in zip(self.inputs, self._input_widths, inputs, strict=True):
            if m.shape[0] != batch.positions.numel():
                raise ValueError(f"input {name!r} has {m.shape[0]} rows, the batch has {batch.positions.numel()}")
            if m.shape[1] != width:
                raise ValueError(f"input {name!r} has rows of width {m.shape[1]}, {width} is needed")
        return inputs, tuple((m.data_ptr(), m.stride(0) if m.shape[0] > 1 else m.shape[1]) for m in inputs)

    def _states(self, now: Recurrence) -> tuple[tuple[Any, ...], Block | None]:
        pool, lineage, rows = now.pool, now.lineage, now.recorded
        block = Block(self.model, len(rows)) if rows else None
        at = 0 if block is None else block.memory.data_ptr()
        places = pool.matrices.data_ptr(), pool.windows.data_ptr(), pool.places
        return (*places, lineage.source, lineage.keep, at, list(rows)), block

    def _extend_rotary(self, positions: int) -> None:
        """Rotations of so many positions at least."""
        frequencies = self.model.frequencies
        if positions <= self._rotary_positions or frequencies is None:
            return
        with self._rotary_lock.writing():
            if positions <= self._rotary_positions:  # another thread was first
                return
            both = cos_and_sin(frequencies, self.model.rope_scale, positions)
            self._rotary += both
            self.program.rotary(*(m.data_ptr() for m in both), 2 * len(frequencies), len(both[0]))
            self._rotary_positions = len(both[0])


def _count(batch: Batch, name: str, rows: int) -> int:
    """Of all rows those that a tap has: behind a ``Pick`` they are fewer."""
    wanted = batch.logits if name == "logits" else batch.final if name == "final" else None
    if wanted is None and name == "logits":
        wanted = batch.final
    return rows if wanted is None else len(wanted)


def _in_rows(m: Tensor) -> Tensor:
    """float32 with the numbers of a row side by side, as it is where it can be."""
    m = m if m.dtype == torch.float32 else m.float()
    return m if m.stride(1) == 1 else m.contiguous()


def _sequence(s: SequenceRows) -> tuple[Any, ...]:
    cache = s.cache
    address, length = (0, 0) if cache is None else (cache.address, cache.length)
    if s.parents is None:
        return address, length, s.rows, s.start, s.rows, None
    return address, length, s.rows, s.start, s.pending, tuple(s.parents)


class Block:
    """Recorded rows of all gated delta layers: float32 [L, n, x | k | d | g]."""

    def __init__(self, model: Model, rows: int) -> None:
        s = model.delta
        self.model, self.rows = model, rows
        self.memory = torch.empty(model.recurring, rows, s.record_bytes // 4)

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def replay(self, pool: StatePool, place: int, path: Sequence[int]) -> None:
        """Bring the state in ``place`` behind these rows of the record, in order."""
        at = pool.matrices.data_ptr(), pool.windows.data_ptr(), pool.places
        module().replay(recurrence(self.model), *at, place, self.memory.data_ptr(), self.rows, list(path))
