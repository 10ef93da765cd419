"""The launches of a gated delta net, or of Mamba-2, of one bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from spec_kernels.gpu.delta import DeltaInputs, columns_of, prepare_rows, split_record
from spec_kernels.gpu.delta_rule import Rows, Solved, by_channel, compute_rows, compute_runs
from spec_kernels.gpu.recurrence import StateLayout
from spec_kernels.gpu.states import StateChunks
from spec_kernels.gpu.windows import keep_windows
from spec_kernels.model import ops
from spec_kernels.ops.gated_delta.plan import PIECE


@dataclass(frozen=True, eq=False)
class DeltaLayer:
    """A layer and its memory.

    record: float32 [L, P, *], or [1, P, *] for all layers, see ``delta``. borrow: gives float32 memory that other
    layers use too. vector: puts a small tensor on the device.
    """

    op: ops.Delta | ops.Scan
    layout: StateLayout
    pool: StateChunks
    record: Tensor
    borrow: Callable[..., Tensor]
    vector: Callable[[Tensor], Tensor]

    def launches(self, x: Tensor, beta: Tensor, alpha: Tensor, out: Tensor) -> Iterator[tuple[str, partial[None]]]:
        """Names and launches. x: [P, C]. beta, alpha: [P, Hv]; of Mamba-2, its steps. out: float32 [P, Hv · Dv]."""
        layout, size = self.layout, self.layout.size
        inputs = self._inputs(len(out))
        yield "convolution", partial(prepare_rows, x, beta, alpha, layout.links, inputs)
        rows, columns = self._rows(inputs, out), columns_of(self.op.shape)
        before, runs, after = layout.stages
        yield "gated delta rule", partial(compute_rows, rows, before, columns)
        if size.runs:
            yield "gated delta rule of runs", partial(compute_runs, rows, runs, self._borrow_solution())
            yield "gated delta rule", partial(compute_rows, rows, after, columns)
        windows = self.pool.of_layer(self.op.layer)[1]
        yield "windows", partial(keep_windows, x, windows, 1, layout.links, layout.kept)

    def _inputs(self, count: int) -> DeltaInputs:
        op, s, recorded = self.op, self.op.shape, self.layout.size.recorded
        return DeltaInputs(
            conv=self.vector(op.conv),
            rate=self.vector(op.rate),
            dt=self.vector(op.dt),
            eps=0.0 if isinstance(op, ops.Scan) else op.eps,
            bias=self.vector(op.bias) if isinstance(op, ops.Scan) else None,
            strength=1.0 if isinstance(op, ops.Scan) else op.strength,
            pool=self.pool,
            layer=op.layer,
            q=self.borrow("delta q", count, s.key_heads, s.key_dim),
            v=self.borrow("delta v", count, s.value_heads, s.value_dim),
            rates=self.borrow("delta rates", count, s.value_heads),
            record=self.record[op.layer if recorded else 0],
            recorded=recorded,
        )

    def _rows(self, inputs: DeltaInputs, out: Tensor) -> Rows:
        s, asides = self.op.shape, self.layout.size.asides
        _, k, d, g = split_record(inputs.record, s)
        matrices, _ = self.pool.of_layer(self.op.layer)
        aside = self.borrow("delta asides", asides, s.value_heads, s.key_dim, s.value_dim)
        g, o = by_channel(g, k), out.view(inputs.v.shape)
        skip = self.vector(self.op.skip) if isinstance(self.op, ops.Scan) else None
        return Rows(inputs.q, k, inputs.v, inputs.rates, g, matrices, 1, self.pool.key_of, aside, o, d, skip)

    def _borrow_solution(self) -> Solved:
        s, pieces = self.op.shape, self.layout.size.runs
        widths = {"w": s.key_dim, "u": s.value_dim, "looks": PIECE}
        return Solved(**{n: self.borrow(f"delta {n}", pieces, s.value_heads, PIECE, w) for n, w in widths.items()})
