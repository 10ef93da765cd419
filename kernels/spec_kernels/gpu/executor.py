"""A model on a GPU: a batch becomes one small upload and the launches of a bucket."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from spec_kernels.gpu.chunks import cut_chunks, rows_max, size_of
from spec_kernels.gpu.delta import RecordedRows
from spec_kernels.gpu.device import device_lock
from spec_kernels.gpu.drafting import draft_on_device
from spec_kernels.gpu.graphs import Bucket, Buckets
from spec_kernels.gpu.heads import Rotary
from spec_kernels.gpu.launch import on_device
from spec_kernels.gpu.layout import Chunk, Layout, Size, sequence_tiles
from spec_kernels.gpu.lowering import Program
from spec_kernels.gpu.matrices import Matrices
from spec_kernels.gpu.pages import PagedCache
from spec_kernels.gpu.plans import PLANS_MAX, ChainPlan, plan_key
from spec_kernels.gpu.pool import CacheShape, Pool
from spec_kernels.gpu.states import StateChunks
from spec_kernels.gpu.support import describe_steps, misfit
from spec_kernels.gpu.tiles import HEIGHT, PAGE, power_of_two, tile_of
from spec_kernels.gpu.values import Facilities
from spec_kernels.model import ops, sizes
from spec_kernels.model.batch import ForwardBatch, SequenceRows, check_given, write_rows
from spec_kernels.model.drafts import PLAIN_DRAFTS, DraftLimits, DraftOptions, Drafts, draft_chains
from spec_kernels.model.executor import describe_conversions
from spec_kernels.model.ops import Attend, Embed, Model, embedding_width
from spec_kernels.model.rotary import cos_and_sin
from spec_kernels.model.source import TensorSource

log = logging.getLogger("spec_core")
PREPARED_ROWS = 1, 2, 4, 8, 16
"""Rows of steps that are captured before they are needed."""
PREPARED_PIECES = 4, 8, 16, 32
"""Their pieces of attention: texts of up to 4,096 positions."""
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(eq=False)
class Shared:
    """Resources that the executors of one target share: weights, and pools of caches by their shape."""

    matrices: Matrices
    positions: int
    pools: dict[tuple[CacheShape, ...], Pool] = field(default_factory=dict)
    borrowers: WeakKeyDictionary[TensorSource, Matrices] = field(default_factory=WeakKeyDictionary)

    def lend(self, source: TensorSource) -> Shared:
        """Shared resources for models whose own weights come from ``source``; they share these too."""
        if source not in self.borrowers:
            self.borrowers[source] = self.matrices.lend()
        return replace(self, matrices=self.borrowers[source])

    def pool(self, model: Model) -> Pool | None:
        """The pool of a model's caches; None without attention."""
        if not model.cached:
            return None
        key = tuple(CacheShape.of(shape) for shape in model.cached)
        if key not in self.pools:
            self.pools[key] = Pool(key, self.positions, self.matrices.dtype, self.matrices.device)
        return self.pools[key]


class Gpu:
    """Executes a description on a CUDA device, or on a CPU in triton's interpreter. Sums are float32; logits are
    float32, other outputs have the type of the weights. A row has the same bits in every batch, chunk and tree.

    Outputs are memory of this executor: valid until the next forward of their thread, unless another one lends weights.
    """

    exact = chooses_tokens = True

    def __init__(
        self,
        model: Model,
        source: TensorSource,
        dtype: torch.dtype,
        device: torch.device,
        positions: int,
        shared: Shared | None = None,
    ) -> None:
        """positions: max of a sequence. shared: of an executor that lends its weights and pools.

        Raises ValueError for a model with inconsistent sizes, or with an operation that has no kernel.
        """
        sizes.check_sizes(model)
        if problem := misfit(model, dtype):
            raise ValueError(problem)
        self.model, self.source, self.dtype, self.device = model, source, dtype, device
        self.shared, self._copies = shared or Shared(Matrices(dtype, device), positions), shared is not None
        self._read_weights()
        pool = self.shared.pool(model)
        shape = model.recurrent
        states = None if shape is None else StateChunks(shape, model.recurring, device)
        self.facilities = Facilities(model, self.shared.matrices, pool, states, self._rotary(), {}, dtype, device)
        self.buckets = Buckets()
        self._plans: dict[Hashable, ChainPlan] = {}
        self._embedded = embedding_width(model)
        self._height = _rows_of_tile(model, dtype)
        attention = [op for op in model.ops if isinstance(op, Attend)]
        # Rows that attend in both directions have no tree.
        self._trees = all(op.causal for op in attention)
        anchored = any(op.anchored for op in attention)
        self._reach = _window_reach(self.model)
        self._whole = anchored or not self._trees or any(isinstance(op, ops.BlockConv) for op in model.ops)

    def _read_weights(self) -> None:
        matrices = self.shared.matrices
        for op in self.model.ops:
            if isinstance(op, ops.Linear):
                matrices.read(self.source, op.weights)
            elif isinstance(op, ops.Clusters):
                matrices.read(self.source, (op.weight,))
            elif isinstance(op, ops.HeadLinear):
                matrices.read(self.source, (op.weight,), floats=True)
            elif isinstance(op, ops.Mixture):
                for weight in (op.gate or op.up, op.up, op.down):
                    matrices.read(self.source, (weight,))
        # An embedding table that is the output matrix too was read above.
        for op in self.model.ops:
            if isinstance(op, Embed):
                matrices.read(self.source, (op.table,))
        matrices.free_staging()

    def _rotary(self) -> list[Rotary]:
        count = self.shared.positions
        tables = [cos_and_sin(table, count, count) for table in self.model.tables]
        here = lambda m: m[:count].to(self.device).contiguous()
        return [Rotary(here(cos), here(sin)) for cos, sin in tables]

    @property
    def row_bytes(self) -> int:
        """Bytes of one position in the caches."""
        return self.model.row_numbers * self.dtype.itemsize

    @property
    def windowed_bytes(self) -> int:
        """Bytes of one position in the caches of layers with a window."""
        return self.model.windowed_numbers * self.dtype.itemsize

    def describe(self) -> str:
        """A sentence for the user."""
        matrices, dtype = self.shared.matrices, str(self.dtype).removeprefix("torch.")
        blocks = f", blocks {' and '.join(matrices.types)}" if matrices.types else ""
        conversions = describe_conversions(matrices.conversions, "quantised")
        return f"{describe_steps()}, weights and cache {dtype}{blocks}){conversions}"

    def with_layers(self, model: Model, source: TensorSource) -> Gpu:
        """An executor of another model that shares weights of equal names with this one, and with those made before
        from the same source.

        Its outputs are copies: draft layers keep them as the states of later forwards.
        """
        return Gpu(model, source, self.dtype, self.device, self.shared.positions, self.shared.lend(source))

    def cache(self, length: int) -> PagedCache | None:
        """Memory of one sequence for ``length`` positions; None without attention."""
        pool = self.facilities.pool
        return None if pool is None else PagedCache(pool, length)

    def states(self) -> StateChunks | None:
        """Places of recurrent states, of this executor alone; None without recurrent layers."""
        return self.facilities.states

    @torch.inference_mode()
    def run(self, batch: ForwardBatch) -> dict[str, Tensor]:
        """The requested outputs, by name: taps [R, width]; after a ``Pick`` only the picked rows."""
        self._check_places(batch.sequences)
        with on_device(self.device):
            key = None if self._copies or self._whole else plan_key(batch, self._height)
            plan = None if key is None else self._plans.get((key, get_ident()))
            if plan is not None and plan.described:
                return self._run_plan(plan, batch)
            return self._run_chunks(batch, key)

    def _run_plan(self, plan: ChainPlan, batch: ForwardBatch) -> dict[str, Tensor]:
        """A step of the same texts and numbers of rows as an earlier one."""
        positions = _on_host(batch.positions)
        self._check_positions(positions)
        drawn = [] if batch.choices is None else [text.t for text in batch.choices.texts]
        plan.fill([s.start for s in batch.sequences], _on_host(batch.tokens), positions, drawn)
        with device_lock(self.device):
            plan.bucket.run()
            _end_choice(plan.bucket.program, batch)
        return dict(plan.outputs)

    def _check_places(self, sequences: Sequence[SequenceRows]) -> None:
        """Raise ValueError for a cache of another pool, for rows whose places it does not have, and for rows whose
        windows reach what was given back."""
        for s in sequences:
            if (cache := s.cache) is None:
                continue
            if cache.pool is not self.facilities.pool:
                raise ValueError("a cache has other layers than the model, or is of another target")
            if s.end > cache.end and not self.model.borrowed:
                raise ValueError(f"a sequence has rows up to {s.end}, its cache has room for {cache.end}")
            if cache.first:
                cache.check_read(s.base - self._reach + 1 if self._reach else 0)

    def _check_positions(self, positions: np.ndarray) -> None:
        if len(positions) and self.model.tables and positions.max() >= self.shared.positions:
            raise ValueError(f"a row has position {positions.max()}, the max is {self.shared.positions - 1}")
        pairs = {len(table.frequencies) for table in self.model.tables}
        if positions.ndim > 1 and pairs != {positions.shape[1]}:
            raise ValueError(f"a row has {positions.shape[1]} positions, a head has {sorted(pairs)} pairs")

    def _run_chunks(self, batch: ForwardBatch, key: Hashable | None) -> dict[str, Tensor]:
        """key: of a plan that is kept if all rows fit in one chunk."""
        check_given(batch.given, self._embedded)
        rows = batch.positions.numel()
        tokens = np.zeros(rows, np.int64) if batch.tokens is None else _on_host(batch.tokens)
        positions = _on_host(batch.positions)
        self._check_positions(positions)
        if not self._trees:
            batch = replace(batch, sequences=[replace(s, parents=None) for s in batch.sequences])
        states = batch.recurrence
        if (None if states is None else states.pool) is not self.facilities.states:
            raise ValueError("states of recurrent layers are needed if a model has any, in places of its executor")
        pieces = max(s.end for s in batch.sequences) // PAGE + 1
        chunks = list(cut_chunks(batch, rows_max(pieces, self.model.cached), self._whole))
        copied = self._copies or len(chunks) > 1
        if len(chunks) == 1 and batch.choices is not None:
            chunks[0] = replace(chunks[0], choices=batch.choices.texts)
        results: list[dict[str, Tensor]] = []
        records: list[Tensor] = []
        for chunk in chunks:
            results.append(self._run(batch, chunk, tokens, positions, copied, records, key))
        if records:
            states.record_as(RecordedRows(torch.cat(records, 1) if len(records) > 1 else records[0]))
        if len(results) == 1:
            return results[0]
        return {name: torch.cat([result[name] for result in results]) for name in results[0]}

    def _run(
        self,
        batch: ForwardBatch,
        chunk: Chunk,
        tokens: np.ndarray,
        positions: np.ndarray,
        copied: bool,
        records: list[Tensor],
        key: Hashable | None,
    ) -> dict[str, Tensor]:
        """One chunk. copied: the outputs must outlive the next chunk. records: takes a copy of the recorded rows."""
        span = slice(chunk.first, chunk.first + chunk.rows)
        tiles = [tile for s in chunk.sequences for tile in sequence_tiles(s, self._height)]
        within = lambda vectors: {row - chunk.first: m for row, m in vectors.items() if span.start <= row < span.stop}
        embeds, added = within(batch.given), [within(vectors) for vectors in batch.added]
        pairs = positions.shape[1] if positions.ndim > 1 else 0
        bucket = self._bucket(size_of(chunk, len(tiles), pairs, any(added)), frozenset(batch.taps))
        states = self.facilities.states
        bucket.layout.fill(chunk, tokens[span], positions[span], tiles, None if states is None else states.offsets)
        for name, memory in bucket.program.inputs.items():
            memory[: chunk.rows].copy_(self._input(batch, name, memory)[span], non_blocking=True)
        _write_added(bucket.program, added)
        with device_lock(self.device):
            bucket.run(partial(write_rows, embeds) if embeds else None)
            _end_choice(bucket.program, batch)
            if chunk.recorded:
                rows = bucket.layout.states.recorded[: len(chunk.recorded)]
                records.append(bucket.program.record.index_select(1, rows))
        counts = {"final": chunk.final, "logits": chunk.final if chunk.logits is None else chunk.logits}
        outputs = {}
        for name, output in bucket.program.outputs.items():
            picked = counts.get(name)
            rows = output[: chunk.rows if picked is None else len(picked)]
            outputs[name] = rows.clone() if copied else rows
        if key is not None and not copied:
            self._plans[key, get_ident()] = ChainPlan.of(bucket, dict(outputs), chunk)
            while len(self._plans) > PLANS_MAX:
                self._plans.pop(next(iter(self._plans)), None)
        return outputs

    def _input(self, batch: ForwardBatch, name: str, memory: Tensor) -> Tensor:
        rows, needed = batch.inputs[name], (batch.positions.numel(), memory.shape[1])
        if tuple(rows.shape) != needed:
            raise ValueError(f"input {name!r} is {list(rows.shape)}, {list(needed)} is needed")
        return rows

    def _bucket(self, size: Size, taps: frozenset[str]) -> Bucket[Program]:
        return self.buckets.get((size, taps), partial(self._create, size, taps))

    def _create(self, size: Size, taps: frozenset[str]) -> Bucket[Program]:
        program = self.program(size, taps)
        return Bucket(program.layout, program)

    def program(self, size: Size, taps: frozenset[str]) -> Program:
        """The launches of a bucket, with memory of their own."""
        return Program(self.facilities, Layout(size, self.device), taps)

    def prepare(self) -> None:
        """Compile and capture steps of one text of every common size, so that no text waits for them.

        Other sizes are captured at their second use. With recurrent layers all are.
        """
        if self.facilities.states is not None:
            return
        began, taps = perf_counter(), frozenset({"logits"})
        longest = power_of_two(self.shared.positions // PAGE + 1)
        pieces = sorted({max(4, min(count, longest)) for count in PREPARED_PIECES})
        with device_lock(self.device), on_device(self.device), torch.inference_mode():
            for size in [self._chain_size(rows, count) for count in pieces for rows in PREPARED_ROWS]:
                bucket = self._create(size, taps)
                bucket.layout.fill(Chunk(0, 0, [], None, None), _NO_ROWS, _NO_ROWS, [])
                bucket.prepare()
                self.buckets.put((size, taps), bucket)
        log.info("%d sizes of steps were captured in %.1f s", len(self.buckets), perf_counter() - began)

    def _chain_size(self, rows: int, pieces: int) -> Size:
        """The bucket of one text's chain of rows."""
        tiles = power_of_two(-(-rows // self._height)) if self.model.cached else 0
        return Size(rows, tiles, pieces, -1, -1, False, chooses=True)

    def compile(self, size: Size) -> None:
        """Run the launches of a bucket, whose description is empty, so that its kernels are compiled."""
        for _, launch in self._bucket(size, frozenset({"logits"})).program.launches:
            launch()

    def chooses(self, sampling: Any, tree: bool = False, reads: bool = False) -> bool:
        """Whether drafts in one call may be drawn with this sampling, may branch, and may read rows of their own."""
        return not (tree or reads or sampling.adjusts or sampling.truncates)

    @torch.inference_mode()
    def draft(self, batch: ForwardBatch, limits: Sequence[DraftLimits], options: DraftOptions = PLAIN_DRAFTS) -> Drafts:
        """Chains: see ``draft_chains``, and ``DraftOptions.keep``."""
        if options.read is not None:
            return draft_chains(self, batch, limits, options)
        if any(of.width > 1 for of in limits):
            raise NotImplementedError("only chains are drafted here")
        self._check_places(batch.sequences)
        with on_device(self.device):
            return draft_on_device(self, batch, limits, options)


def _end_choice(program: Program, batch: ForwardBatch) -> None:
    """Give the choice of a step that is queued to the caller."""
    if program.choice is not None and batch.choices is not None:
        program.choice.mark_end()
        batch.choices.read = program.choice.read


def _write_added(program: Program, added: Sequence[Mapping[int, Tensor]]) -> None:
    """Fill what layers add to the rows of a step; zeros where there is none."""
    for index, memory in program.added.items():
        vectors = added[index] if index < len(added) else {}
        check_given(vectors, memory.shape[1])
        memory.zero_()
        write_rows(vectors, memory)


def _on_host(numbers: Tensor) -> np.ndarray:
    return numbers.cpu().numpy()


def _window_reach(model: Model) -> int:
    """Rows up to its own that a row sees at most in layers whose cache has a window; 0: all rows in one of them."""
    shapes = [op.shape for op in model.ops if isinstance(op, Attend) and model.cached[op.layer].window]
    return 0 if any(not shape.window or shape.lead for shape in shapes) else max((s.window for s in shapes), default=1)


def _rows_of_tile(model: Model, dtype: torch.dtype) -> int:
    """Rows that attend together, in layers of all shapes."""
    tiles = [tile_of(op.shape, dtype) for op in model.ops if isinstance(op, Attend)]
    return max(1, min((height // group for height, group in tiles), default=HEIGHT))
