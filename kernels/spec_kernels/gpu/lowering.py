"""Turns the description of a model into the launches of a step, for one bucket; neighbouring operations are fused.

Linear + Norm, or + Add + Norm   -> the sum of parts, the stream and both norms in one kernel (``sums``)
Linear of q, k, v + Norm + Rotate + Store -> heads (``heads``)
Linear of gate and up + GLU      -> one product (``products``)

A value may be ``Pending``: it becomes part of the kernel of its reader, or is written to memory when somebody else
needs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from spec_kernels.gpu import products
from spec_kernels.gpu.block_conv import convolve_block
from spec_kernels.gpu.choice.of_step import StepChoice
from spec_kernels.gpu.clusters import BestClusters, find_best_clusters, mask_clusters
from spec_kernels.gpu.delta_layer import DeltaLayer
from spec_kernels.gpu.embedding import embed
from spec_kernels.gpu.head_products import multiply_heads
from spec_kernels.gpu.head_values import HeadValues
from spec_kernels.gpu.layout import TOKEN, Layout
from spec_kernels.gpu.mixture import Lines, multiply_experts, multiply_gated_experts, route_rows, sort_lines
from spec_kernels.gpu.pending import Pending, PendingHeads, is_alone
from spec_kernels.gpu.products import Room, multiply, multiply_gated, parts_of, room_sizes
from spec_kernels.gpu.relative import add_relative
from spec_kernels.gpu.repack import Matrix
from spec_kernels.gpu.rows import Function, combine_rows
from spec_kernels.gpu.scores import Attention, Sums, attend
from spec_kernels.gpu.short_conv import convolve_gated
from spec_kernels.gpu.sums import Parts, add_parts
from spec_kernels.gpu.values import Facilities
from spec_kernels.gpu.windows import keep_windows
from spec_kernels.model import ops
from spec_kernels.model.shapes import RecurrentShape

GLUS: dict[str, Function] = {"silu": "silu_glu", "gelu": "gelu_glu", "clamped": "clamped_glu", "relu": "relu_glu"}


class Program(HeadValues):
    """The launches of one bucket, in order, each with a name; its inputs and outputs.

    inputs: float rows [P, width] by name. added: float32 rows [P, width] that layers add, by index. outputs: taps by
    name, [P, width]. record: float32 [L, P, *] of recurrent layers, see ``delta``. choice: of tokens, after the last
    operation; None: none is made.
    """

    def __init__(self, facilities: Facilities, layout: Layout, taps: frozenset[str]) -> None:
        """taps: names of requested outputs."""
        super().__init__(facilities, layout)
        self.taps = taps
        self.inputs: dict[str, Tensor] = {}
        self.added: dict[int, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.embedded: Tensor | None = None
        self.record: Tensor | None = None
        self._sums: dict[tuple[int, int], Sums] = {}
        self._lines: dict[Any, Lines] = {}
        # Keys whose last numbers are their values: they are joined in float32 for the kernel that stores them.
        self._latents = {op.k for op in facilities.model.ops if isinstance(op, ops.Store) and op.v is None}
        self._write(list(facilities.model.ops))
        self.choice: StepChoice | None = None
        if layout.size.chooses and "logits" in self.outputs:
            self.choice = StepChoice(self.outputs["logits"], layout.draws)
            self.launches += self.choice.launches

    def _write(self, rest: list[ops.Op]) -> None:
        """Write all operations. A method takes one and the next one, and returns whether it has fused the next."""
        at = 0
        while at < len(rest):
            op, after = rest[at], rest[at + 1] if at + 1 < len(rest) else None
            at += 2 if getattr(self, type(op).__name__.lower())(op, after) else 1

    # rows from outside

    def embed(self, op: ops.Embed, after: Any) -> None:
        out = self._rows_of(op.out, op.table.k, torch.float32)
        tokens = self.layout.rows[:, TOKEN]
        (table,) = self.of.matrices[(op.table,)]
        self._add("embed", embed, tokens, table, out, op.scale)
        self._values[op.out] = out
        if op.given:
            self.embedded = out

    def input(self, op: ops.Input, after: Any) -> None:
        self.inputs[op.out] = self._rows_of(op.out, op.width, self.of.dtype)
        self._values[op.out] = self.inputs[op.out]

    # products

    def linear(self, op: ops.Linear, after: Any) -> bool:
        matrices = self.of.matrices[op.weights]
        pair = isinstance(after, ops.GLU) and op.outs == (after.gate, after.up) and op.biases == (None, None)
        xs = [self._convert(op.x, matrix.dtype) for matrix in matrices]
        if pair and len(matrices) == 1:
            out = self._rows_of(after.out, op.weights[0].n, self.of.dtype)
            room = self._borrow_room(matrices[0])
            self._add("gated product", multiply_gated, xs[0], matrices[0], out, GLUS[after.act], room)
            self._values[after.out] = out
            return True
        base = None if op.add is None else self._settle(op.add)
        memory = self._parts(op.outs, parts_of(*matrices), self._padded, sum(m.n for m in matrices))
        for x, matrix, columns in zip(xs, matrices, memory.split([m.n for m in matrices], 2), strict=True):
            self._add(f"product {'+'.join(op.outs)}", multiply, x, matrix, columns)
        columns = memory.split([w.n for w in op.weights], 2)
        for name, bias, part in zip(op.outs, op.biases, columns, strict=True):
            self._values[name] = Pending(Parts(part, None if bias is None else self._vector(bias)), base)
        return False

    def _borrow_room(self, matrix: Matrix) -> Room | None:
        sizes = room_sizes(matrix, self._padded)
        if sizes is None:
            return None
        parts = self.of.borrow("gate and up", sizes[0]).view(-1, self._padded, matrix.n)
        return Room(parts, self.of.borrow("counts", sizes[1]).view(torch.int32))

    def mixture(self, op: ops.Mixture, after: Any) -> None:
        """The sum of experts waits, as the parts of a product do."""
        base = None if op.add is None else self._settle(op.add)
        scores, e = self._settle(op.scores), op.experts
        x = self._convert(op.x, self.of.dtype)
        key = self._rows, e.used, e.count
        if key not in self._lines:
            self._lines[key] = Lines.empty(*key, self.of.device)
        lines = self._lines[key]
        bias = self._room("no bias", e.count) if op.bias is None else self._vector(op.bias)
        factors = None if op.factors is None else self._vector(op.factors)
        self._add("route", route_rows, scores[: self._rows], bias, factors, e, lines)
        self._add("sort", sort_lines, lines)
        gate, up, down = (None, None, None) if op.biases is None else (self._vector(b) for b in op.biases)
        biases, width = None if gate is None else (gate, up), x.shape[1]
        inner = self._room("experts", len(lines.order), op.up.n, dtype=self.of.dtype)
        first, second, last = (self.of.matrices[(w,)][0] for w in (op.gate or op.up, op.up, op.down))
        self._add("gated experts", multiply_gated_experts, x, lines, (first, second), biases, inner, GLUS[op.act])
        memory = self._parts((op.out, "experts"), e.used, self._padded, width)
        self._add("experts", multiply_experts, inner, lines, last, down, memory)
        self._values[op.out] = Pending(Parts(memory), base)

    def clusters(self, op: ops.Clusters, after: Any) -> None:
        """The whole product, without the columns of other clusters."""
        (matrix,), scores = self.of.matrices[(op.weight,)], self._settle(op.scores)
        memory = self._parts((op.out, "clusters"), parts_of(matrix), self._padded, matrix.n)
        self._add("product of clusters", multiply, self._convert(op.x, matrix.dtype), matrix, memory)
        self._values[op.out] = Pending(Parts(memory))
        products, out = self._settle(op.out), self._rows_of(f"{op.out} of clusters", matrix.n, torch.float32)
        best = BestClusters.empty(self._rows, scores.shape[1], op.used, self.of.device)
        self._add("best clusters", find_best_clusters, scores[: self._rows], best)
        self._add("columns of clusters", mask_clusters, products, scores, best, out[: self._rows])
        self._values[op.out] = out

    def glu(self, op: ops.GLU, after: Any) -> None:
        gate, up = self._settle(op.gate), self._settle(op.up)
        self._combine(op.out, GLUS[op.act], gate, up)

    def norm(self, op: ops.Norm, after: Any) -> None:
        value, width = self._values[op.x], self._width(op.x)
        pieces = width // len(op.weight)
        # A norm that an addition follows is the inner one of the kernel that adds.
        adds = isinstance(after, ops.Add) and op.out in (after.x, after.y)
        alone = value if is_alone(value) and op.groups == 1 else None
        if alone is not None and adds and pieces == 1:
            self._values[op.out] = replace(alone, inner=self._norm(op))
            return
        if alone is not None and op.x == op.out:
            self._values[op.out] = PendingHeads(alone.parts, len(op.weight), self._norm(op))
            return
        if not isinstance(value, Pending) or op.groups > 1 or pieces > 1:
            rows = self._settle(op.x)
            out = self._rows_of(f"{op.out} normed", width, self.of.dtype)
            self._add("norm", add_parts, self._rows, None, rows, outer=self._norm(op), out=out)
            self._values[op.out] = out
            return
        if op.x != op.out:
            self._values[op.x] = value.parts.memory[0]  # it is written below
        total = None if op.x == op.out else self._rows_of(op.x, width, torch.float32)
        out = self._rows_of(f"{op.out} normed", width, self.of.dtype)
        how = {"inner": value.inner, "total": total, "outer": self._norm(op), "out": out, "scale": value.scale}
        self._add("sum, norm", add_parts, self._rows, value.parts, value.base, **how)
        if total is not None:
            self._values[op.x] = total
        self._values[op.out] = out

    # element by element

    def add(self, op: ops.Add, after: Any) -> None:
        value = self._values[op.y]
        if isinstance(value, Pending) and value.base is None and op.out == op.x:
            self._values[op.out] = replace(value, base=self._settle(op.x), scale=op.scale)
            del self._values[op.y]
            return
        self._combine(op.out, "add", self._settle(op.x), self._settle(op.y), op.scale)

    def addrows(self, op: ops.AddRows, after: Any) -> None:
        """Of steps in which no row has any, nothing is launched."""
        if self.layout.size.added:
            x = self._settle(op.x)
            self.added[op.index] = self._room(("added", op.index), self._padded, x.shape[1])
            self._combine(op.x, "add", x, self.added[op.index])

    def addrelative(self, op: ops.AddRelative, after: Any) -> None:
        x, y = self._settle(op.x), self._settle(op.y)
        out = self._rows_of(f"{op.x} relative", x.shape[1], x.dtype)
        self._add("relative sum", add_relative, x, y, out[: self._rows])
        self._values[op.x] = out

    def gate(self, op: ops.Gate, after: Any) -> None:
        self._combine(op.out, op.by, self._settle(op.x), self._settle(op.gate))

    def softcap(self, op: ops.SoftCap, after: Any) -> None:
        self._combine(op.x, "cap", self._settle(op.x), scale=op.cap)

    def scale(self, op: ops.Scale, after: Any) -> None:
        self._combine(op.x, "copy", self._settle(op.x), scale=op.by)

    def _combine(self, name: str, function: Function, x: Tensor, y: Tensor | None = None, scale: float = 1.0) -> None:
        out = self._rows_of(f"{name} combined", x.shape[1], x.dtype)
        self._add(function, combine_rows, function, out[: self._rows], x, y, scale=scale)
        self._values[name] = out

    def columns(self, op: ops.Columns, after: Any) -> None:
        self._values[op.out] = self._settle(op.x)[:, op.start : op.start + op.width]

    def concat(self, op: ops.Concat, after: Any) -> None:
        """Of one product alone it is another name of it: values that are the keys."""
        if len(op.xs) == 1 and is_alone(value := self._values[op.xs[0]]):
            self._values[op.out] = value
            return
        rows = [self._settle(x) for x in op.xs]
        latent = op.out in self._latents
        out = self._rows_of(op.out, sum(m.shape[1] for m in rows), torch.float32 if latent else self.of.dtype)
        first = 0
        for m in rows:
            self._add("join", combine_rows, "copy", out[: self._rows, first : first + m.shape[1]], m)
            first += m.shape[1]
        self._values[op.out] = Pending(Parts(out[None])) if latent else out

    def blockconv(self, op: ops.BlockConv, after: Any) -> None:
        x, kernel = self._settle(op.x), None if op.kernel is None else self._settle(op.kernel)
        out = self._rows_of(op.out, x.shape[1], self.of.dtype)
        self._add("convolution", convolve_block, self.layout.rows, x, kernel, self._vector(op.base), out)
        self._values[op.out] = out

    # attention

    def headlinear(self, op: ops.HeadLinear, after: Any) -> None:
        (matrix,), heads = self.of.matrices[(op.weight,)], op.weight.count
        x = self._settle_heads(op.x, op.kept + op.weight.k)
        out = self._rows_of(op.out, heads * (op.kept + op.weight.n), self.of.dtype)
        apart = lambda m: m[: self._rows].view(self._rows, heads, -1)
        weights = matrix.memory.numbers.view(heads, op.weight.n, op.weight.k)
        self._add("products of heads", multiply_heads, apart(x), weights, op.kept, apart(out))
        self._values[op.out] = out

    def attend(self, op: ops.Attend, after: Any) -> None:
        q, s, size = self._settle_heads(op.q, op.shape.dim), op.shape, self.layout.size
        shape = s.heads, s.value_dim
        if shape not in self._sums:
            self._sums[shape] = self._borrow_sums(*shape)
        sinks = None if op.sinks is None else self._vector(op.sinks)
        causal, anchored = op.causal and not size.mutual, op.anchored and s.window > 0
        how = Attention(s, self.of.pool, op.layer, causal, sinks, size.tree, anchored)
        out, layout = self._rows_of(op.out, s.out_width, self.of.dtype), self.layout
        heads, sums = (lambda m: m.view(len(m), s.heads, -1)), self._sums[shape]
        self._add("attention", attend, heads(q), layout.rows, layout.tiles, layout.paths, sums, how, heads(out))
        self._values[op.out] = out

    def _borrow_sums(self, heads: int, dim: int) -> Sums:
        pieces, rows = self.layout.size.pieces, self._padded
        borrow = self.of.borrow
        values = borrow("sums", pieces, rows, heads, dim)
        return Sums(values, borrow("peaks", pieces, rows, heads), borrow("masses", pieces, rows, heads))

    def delta(self, op: ops.Delta, after: Any) -> None:
        self._recur(op, *(self._settle(name) for name in (op.qkv, op.beta, op.alpha)))

    def scan(self, op: ops.Scan, after: Any) -> None:
        self._recur(op, *(self._settle(name) for name in (op.qkv, op.step, op.step)))

    def shortconv(self, op: ops.ShortConv, after: Any) -> None:
        """The inputs of the convolution are what is recorded."""
        layout, states, (b, x, c) = self.layout.states, self.of.states, (self._settle(n) for n in (op.b, op.x, op.c))
        u = self._borrow_record(op.shape)[op.layer if layout.size.recorded else 0]
        out = self._values[op.out] = self._rows_of(op.out, op.shape.channels, self.of.dtype)
        windows = states.of_layer(op.layer)[1]
        self._add("gate", combine_rows, "identity", u[: self._rows], b, x)
        self._add("convolution", convolve_gated, u, c, self._vector(op.conv), windows, layout.links, out)
        self._add("windows", keep_windows, u, windows, 1, layout.links, layout.kept)

    def _borrow_record(self, shape: RecurrentShape) -> Tensor:
        """Memory for what all layers record of their rows; of one layer if nothing is recorded."""
        layers = self.of.states.layers if self.layout.states.size.recorded else 1
        self.record = self.of.borrow("record", layers, self._padded, shape.record_bytes // 4)
        return self.record

    def _recur(self, op: ops.Delta | ops.Scan, x: Tensor, beta: Tensor, alpha: Tensor) -> None:
        layout, states = self.layout.states, self.of.states
        record = self._borrow_record(op.shape)
        out = self._values[op.out] = self._rows_of(op.out, op.shape.value_width, torch.float32)
        layer = DeltaLayer(op, layout, states, record, self.of.borrow, self._vector)
        for name, launch in layer.launches(x, beta, alpha, out):
            self._add(name, launch)

    # outputs

    def pick(self, op: ops.Pick, after: Any) -> None:
        size = self.layout.size
        count, index = (size.final, self.layout.final) if op.rows == "final" else (size.logits, self.layout.logits)
        if count == 0:
            self._silent = True
        if count < 0:
            if op.x != op.out:
                self._values[op.out] = self._settle(op.x)
            return
        rows = self._settle(op.x)
        self._rows, self._padded = count, products.padded_rows(count)
        out = self._rows_of(f"{op.out} {op.rows}", rows.shape[1], rows.dtype)
        self._add("pick", combine_rows, "copy", out[:count], rows, index=index[:, 0])
        self._values = {op.out: out}  # all other rows are dropped

    def tap(self, op: ops.Tap, after: Any) -> None:
        if op.name not in self.taps:
            return
        rows = self._settle(op.x)
        if op.name == "logits":
            self.outputs[op.name] = rows[: self._rows]
            return
        out = self._room(("tap", op.name), self._padded, rows.shape[1], dtype=self.of.dtype)
        self._add("output", combine_rows, "copy", out[: self._rows], rows)
        self.outputs[op.name] = out[: self._rows]
