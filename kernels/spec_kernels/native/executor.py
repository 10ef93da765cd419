"""A model on the native program: a batch becomes the arguments of one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from spec_kernels.model import sizes
from spec_kernels.model.batch import ForwardBatch, SequenceRows, check_given
from spec_kernels.model.drafts import PLAIN_DRAFTS, Drafted, DraftLimits, DraftOptions, Drafts
from spec_kernels.model.executor import ExecutorRequest, MemoryPlan, describe_conversions
from spec_kernels.model.ops import Input, Model, embedding_width
from spec_kernels.model.readers import ReadersLock
from spec_kernels.model.recurrence import Recurrence
from spec_kernels.model.rotary import RotaryTables
from spec_kernels.model.source import Shape, TensorSource
from spec_kernels.model.states import StatePool
from spec_kernels.native import activations, instruction_sets, limits, module, native_cache, problem
from spec_kernels.native.lower import Lowering, recurrence
from spec_kernels.native.native_cache import AUTO, NOTHING, NativeCache, choose_cache_type, place_bytes
from spec_kernels.native.weights import TILE, Arena, Tiles, planned_type
from spec_kernels.ops.dequant import TYPES as STORED

WEIGHTS = (AUTO, "q8_0")
WIDENED = (torch.float16, torch.bfloat16)
"""Dtypes that float32 may replace."""


@dataclass(frozen=True)
class Options:
    """activations: bits of rows in products with quantised weights, a name in ``activations.CHOICES``. cache:
    a type in ``cache.CHOICES``. requantise: float weights become Q8_0. isa: an instruction set; None means the best.
    release: called with stored rows that were copied and are not read again. positions: max of a sequence, 0: not
    known."""

    activations: str = AUTO
    cache: str = AUTO
    requantise: bool = False
    isa: str | None = None
    release: Callable[[Tensor], None] | None = None
    positions: int = 0


SHARED = ("path", "token", "depth")
"""What a row depends on, in the order of ``enum spec_shared``."""


class Native:
    """Executes a description on the CPU; results are float32. A row has the same bits in every batch and chunk, on
    every number of threads and instruction set.
    """

    name, device_type, batch_device = "native", "cpu", ""
    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "activations": activations.CHOICES,
        "cache_dtype": native_cache.CHOICES,
        "weights": WEIGHTS,
    }
    threaded = shows_cache = exact = True
    chooses_tokens = False
    layer_max: ClassVar[Mapping[str, int]] = {"head": limits.MAX_HEAD, "inputs": limits.MAX_INPUTS}

    def __init__(
        self,
        model: Model,
        source: TensorSource,
        options: Options | None = None,
        lent: Mapping[Any, Tiles] | None = None,
        rotary: RotaryTables | None = None,
    ) -> None:
        """lent: weights of another executor, which are not read again. rotary: tables of another executor.

        Raises ValueError for a model with inconsistent or too large sizes: C does not check them.
        """
        sizes.check_sizes(model)
        limits.check_limits(model)
        self.model, self.source, self.options = model, source, options or Options()
        self.arena = Arena(model, source, self.options.requantise, lent, self.options.release)
        self.activations = activations.choose_activations(self.options.activations, model, self.arena)
        self.cache_type = choose_cache_type(self.options.cache, self.activations.bits)
        lowering = Lowering(model, self.arena, self.activations.bits, self.cache_type, self.options.isa)
        self.program, self.taps, self.widths = lowering.program, lowering.taps, lowering.widths
        self.inputs = lowering.inputs
        self._logits = self.taps.index("logits") if "logits" in self.taps else -1
        self._always = tuple(lowering.bound)  # the program writes there
        self._at = {
            name: (i, width, -(-width // TILE) * TILE if name in lowering.bound else width)
            for i, (name, width) in enumerate(zip(self.taps, self.widths, strict=True))
        }
        self._given_widths = [embedding_width(model), *lowering.added]
        self._input_widths = [op.width for op in model.ops if isinstance(op, Input)]
        self._shape = lowering.shape if model.cached else None
        if rotary is None or not rotary.is_for(model.tables):
            rotary = RotaryTables(model.tables, self.options.positions)
        self.rotary = rotary
        self._rotary: list[tuple[Tensor, Tensor]] = []
        self._rotary_positions, self._threads, self._rotary_lock = 0, 1, ReadersLock()

    # what is known before weights are read

    @classmethod
    def problem(cls, model: Model, request: ExecutorRequest) -> str | None:
        """Why it cannot run a model; None if it can."""
        if request.device.type != "cpu":
            return f"native kernels are for the CPU, this is {request.device}"
        if request.dtype != torch.float32 and not (request.widen and request.dtype in WIDENED):
            return f"native kernels compute in float32, dtype is {request.dtype_name}"
        return problem() or limits.misfit(model)

    @classmethod
    def plan(cls, model: Model, tensors: Iterable[tuple[str, Shape]], request: ExecutorRequest) -> MemoryPlan:
        """Memory of a model: matrices stay as stored; the cache has the largest type that may be chosen."""
        kind = choose_cache_type(request.setting("cache_dtype"), bits=15)
        weights = sum(_weight_bytes(stored, shape) for stored, shape in tensors)
        windowed = sum(place_bytes(kind, shape) for shape in model.cached if shape.window)
        return MemoryPlan(weights, sum(place_bytes(kind, shape) for shape in model.cached), windowed=windowed)

    @classmethod
    def describe_plan(cls, request: ExecutorRequest) -> str:
        """A sentence for the user."""
        kept = request.setting("weights")
        return _describe(instruction_sets()[0], request.setting("activations"), request.setting("cache_dtype"), kept)

    @classmethod
    def load(cls, model: Model, source: TensorSource, request: ExecutorRequest) -> Native:
        """Read the weights."""
        kept = request.setting("weights") == "q8_0"
        settings = request.setting("activations"), request.setting("cache_dtype"), kept
        return cls(model, source, Options(*settings, release=request.release, positions=request.positions))

    def describe(self) -> str:
        """A sentence for the user, with counts of weights that could not keep their stored type."""
        kept = "q8_0" if self.options.requantise else AUTO
        words = _describe(self.isa, self.activations, self.cache_type, kept)
        return words + describe_conversions(self.arena.converted_counts, "native")

    @property
    def row_bytes(self) -> int:
        """Bytes of one position in the caches."""
        return sum(place_bytes(self.cache_type, shape) for shape in self.model.cached)

    @property
    def windowed_bytes(self) -> int:
        """Bytes of one position in the caches of layers with a window."""
        return sum(place_bytes(self.cache_type, shape) for shape in self.model.cached if shape.window)

    @property
    def isa(self) -> str:
        return self.options.isa or instruction_sets()[0]

    def with_layers(self, model: Model, source: TensorSource) -> Native:
        """An executor of another model that shares weights of equal names with this one, and reads its caches."""
        return Native(model, source, replace(self.options, cache=self.cache_type), self.arena.tiles, self.rotary)

    def cache(self, length: int) -> NativeCache | None:
        """Memory of one sequence for ``length`` positions; None without attention."""
        return None if self._shape is None else NativeCache(self._shape, length)

    def states(self) -> StatePool | None:
        """A pool of recurrent states; None without recurrent layers."""
        shape = self.model.recurrent
        return None if shape is None else StatePool(shape, self.model.recurring)

    def run(self, batch: ForwardBatch) -> dict[str, Tensor]:
        """The requested outputs, by name: taps [R, width]; after a ``Pick`` only the picked rows."""
        outputs, places = self._outputs(batch)
        with batch.steady():
            arguments, block, alive = self._arguments(batch, places)
            self.program.run(*arguments)
        del alive
        if block is not None:
            batch.recurrence.record_as(block)
        return outputs

    def chooses(self, sampling: Any, tree: bool = False, reads: bool = False) -> bool:
        """Whether drafts in one call may be drawn with this sampling, may branch, and may read rows of their own."""
        return True

    def draft(self, batch: ForwardBatch, limits: Sequence[DraftLimits], options: DraftOptions = PLAIN_DRAFTS) -> Drafts:
        """A draft after the last row of every sequence, for which one row of logits is wanted.

        limits: of every sequence. Its cache has room for ``width`` x (``depth`` - 1) places more.
        """
        state, ids, keep, read, sure = options.state, options.ids, options.keep, options.read, options.sure
        if keep and any(of.width > 1 for of in limits):
            raise ValueError("rows of logits are kept of chains only")
        room = sum(of.depth * of.width if keep else of.rows or of.width for of in limits)
        outputs, places = self._outputs(batch, room)
        self._extend_rotary(max(s.end + of.depth for s, of in zip(batch.sequences, limits, strict=True)) + 1)
        arguments, _, alive = self._arguments(batch, places)
        at = -1 if state is None else self.taps.index(state)
        tokens = None if ids is None else (ids.data_ptr(), len(ids))
        inputs = None if read is None else [[_in_rows(of[name]) for name in self.inputs] for of in read]
        requests = tuple(
            (
                *(l.depth, l.nodes, l.width, l.p_min, l.trust, tuple(l.stops), l.chooser, tuple(l.before)),
                *(l.rows, SHARED.index(l.shared)),
            )
            for l in limits
        )
        drafted, forwards, rows = self.program.draft(
            *arguments,
            *(requests, self._logits, at, tokens, keep, room),
            None if inputs is None else tuple(tuple((m.data_ptr(), _stride(m), len(m)) for m in of) for of in inputs),
            -1 if sure is None else self.taps.index(sure),
        )
        del alive
        drafts = [Drafted(*one) for one in drafted]
        states = None if state is None else outputs[state]
        return Drafts(_with_rows(drafts, outputs["logits"]) if keep else drafts, forwards, rows, states)

    # arguments

    def _outputs(self, batch: ForwardBatch, room: int = 0) -> tuple[dict[str, Tensor], tuple[Any, ...]]:
        """Memory for what is wanted: tensors by name, and (address, stride) or None of every tap.

        room: rows of every output at least.
        """
        outputs: dict[str, Tensor] = {}
        places: list[tuple[int, int] | None] = [None] * len(self.taps)
        rows = len(batch.positions)
        for name in (*batch.taps, *self._always):
            if name in outputs or name not in self._at:
                continue
            i, width, stride = self._at[name]
            count = max(_count(batch, name, rows), room)
            # A row at least: an empty tensor has no address.
            memory = torch.empty(count or 1, stride)
            places[i] = memory.data_ptr(), stride
            outputs[name] = memory if stride == width and count else memory[:count, :width]
        return outputs, tuple(places)

    def _arguments(self, batch: ForwardBatch, places: tuple[Any, ...]) -> tuple[tuple[Any, ...], Block | None, Any]:
        """The arguments of C, the memory of a record, and objects that must stay alive during the call."""
        threads = torch.get_num_threads()
        if threads != self._threads:
            self.program.threads(threads)
            self._threads = threads
        sequences = tuple(map(_sequence, batch.sequences))
        self._extend_rotary(max([s.end for s in batch.sequences]) + 1)
        kept = self._given_rows(batch) if batch.given or batch.added else ()
        vectors = tuple((row, at.data_ptr(), index) for index, row, at in kept)
        inputs, places_in = self._inputs(batch) if self.inputs else ((), ())
        states, block = (None, None) if batch.recurrence is None else self._states(batch.recurrence)
        tokens = 0 if batch.tokens is None else batch.tokens.data_ptr()
        headings = (batch.final, batch.logits)
        each = 1 if batch.positions.dim() == 1 else batch.positions.shape[1]
        where = (tokens, (batch.positions.data_ptr(), each), len(batch.positions))
        return (*where, sequences, vectors, places_in, headings, places, states), block, (kept, inputs)

    def _given_rows(self, batch: ForwardBatch) -> list[tuple[int, int, Tensor]]:
        """(0 for an embedding, 1 and up for what is added, row, vector); rows that the model does not read are not."""
        rows = []
        for index, (vectors, width) in enumerate(zip((batch.given, *batch.added), self._given_widths, strict=False)):
            check_given(vectors, width)
            rows += [(index, row, vector.to(dtype=torch.float32).contiguous()) for row, vector in vectors.items()]
        return rows

    def _inputs(self, batch: ForwardBatch) -> tuple[list[Tensor], tuple[tuple[int, int], ...]]:
        """Matrices with contiguous rows, and (address, stride) of each."""
        inputs = [_in_rows(batch.inputs[name]) for name in self.inputs]
        for name, width, m in zip(self.inputs, self._input_widths, inputs, strict=True):
            if m.shape[0] != len(batch.positions):
                raise ValueError(f"input {name!r} has {m.shape[0]} rows, the batch has {len(batch.positions)}")
            if m.shape[1] != width:
                raise ValueError(f"input {name!r} has rows of width {m.shape[1]}, {width} is needed")
        return inputs, tuple((m.data_ptr(), _stride(m)) for m in inputs)

    def _states(self, now: Recurrence) -> tuple[tuple[Any, ...], Block | None]:
        pool, lineage, rows = now.pool, now.lineage, now.recorded
        block = Block(self.model, len(rows)) if rows else None
        at = 0 if block is None else block.memory.data_ptr()
        places = pool.matrices.data_ptr(), pool.windows.data_ptr(), pool.places
        return (*places, lineage.source, lineage.keep, at, list(rows)), block

    def _extend_rotary(self, positions: int) -> None:
        """Extend the rotations to at least ``positions``."""
        if positions <= self._rotary_positions or not self.model.tables:
            return
        with self._rotary_lock.writing():
            if positions <= self._rotary_positions:  # another thread was first
                return
            tables = self.rotary.of_positions(positions)
            places = tuple((cos.data_ptr(), sin.data_ptr(), 2 * cos.shape[1]) for cos, sin in tables)
            self.program.rotary(places, len(tables[0][0]))
            self._rotary, self._rotary_positions = tables, len(tables[0][0])  # the program reads them until the next


def _with_rows(chains: list[Drafted], logits: Tensor) -> list[Drafted]:
    """Chains with their rows: the first rows of all chains lie before the second rows, and so on."""
    places: list[list[int]] = [[] for _ in chains]
    first = 0
    for depth in range(max(len(chain.tokens) for chain in chains)):
        going = [indices for indices, chain in zip(places, chains, strict=True) if len(chain.tokens) > depth]
        for at, indices in enumerate(going, first):
            indices.append(at)
        first += len(going)
    return [replace(chain, rows=logits[indices]) for chain, indices in zip(chains, places, strict=True)]


def _count(batch: ForwardBatch, name: str, rows: int) -> int:
    """Number of rows of a tap; after a ``Pick`` there are fewer."""
    picked = batch.logits if name == "logits" else batch.final if name == "final" else None
    if picked is None and name == "logits":
        picked = batch.final
    return rows if picked is None else len(picked)


def _in_rows(m: Tensor) -> Tensor:
    """float32 with contiguous rows; copied only if needed."""
    m = m if m.dtype == torch.float32 else m.float()
    return m if m.stride(1) == 1 else m.contiguous()


def _stride(m: Tensor) -> int:
    """Numbers from one row to the next."""
    return m.stride(0) if m.shape[0] > 1 else m.shape[1]


def _weight_bytes(stored: str, shape: Shape) -> int:
    """Bytes of a tensor: vectors are floats."""
    if len(shape) < 2:
        return math.prod(shape) * torch.float32.itemsize
    block = STORED[planned_type(stored)]
    return math.prod(shape) // block.elements * block.bytes


def _describe(isa: str, bits: object, cached: str, weights: str) -> str:
    return f"native ({isa}, activations {bits}, cache {cached}, weights {weights})"


def _sequence(rows: SequenceRows) -> tuple[Any, ...]:
    memory = NOTHING if rows.cache is None else rows.cache.arguments
    if rows.parents is None:
        return memory, rows.rows, rows.start, rows.rows, None, rows.mutual, rows.held
    return memory, rows.rows, rows.start, rows.pending, tuple(rows.parents), rows.mutual, rows.held


class Block:
    """Recorded rows of all recurrent layers: float32 [L, n, x | k | d | g], or x alone of short convolutions."""

    def __init__(self, model: Model, rows: int) -> None:
        self.model, self.rows = model, rows
        self.memory = torch.empty(model.recurring, rows, model.recurrent.record_bytes // 4)

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def replay(self, pool: StatePool, place: int, path: Sequence[int]) -> None:
        """Advance the state in ``place`` along these rows of the record, in order."""
        at = pool.matrices.data_ptr(), pool.windows.data_ptr(), pool.places
        module().replay(recurrence(self.model), *at, place, self.memory.data_ptr(), self.rows, list(path))
