"""One forward of the reference: every operation as its formula."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from spec_kernels.model import ops
from spec_kernels.model.activations import glu, sigmoid, silu, softplus, tanh
from spec_kernels.model.attention import attention
from spec_kernels.model.batch import ForwardBatch, SequenceRows, check_given, numbers, write_rows
from spec_kernels.model.mixed_streams import mix_streams, stream_weights, sum_streams
from spec_kernels.model.mixture import mixture
from spec_kernels.model.ops import Model
from spec_kernels.model.pools import best_pools, pool_keys, seen_positions
from spec_kernels.model.tiles import product
from spec_kernels.ops.causal_conv import causal_conv
from spec_kernels.ops.gated_delta import gated_delta, scan
from spec_kernels.ops.rms_norm import rms_norm

GATES = {"sigmoid": sigmoid, "silu": silu, "softplus": softplus, "identity": lambda gates: gates}


class Loaded(Protocol):
    """A model with its weights, by ``Weight.key``, as matrices [k, n], or [count, k, n]."""

    model: Model
    weights: dict[Any, Tensor]
    dtype: torch.dtype
    device: torch.device

    def cos_and_sin(self, table: int, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin [positions or more, pairs] of a table."""

    def here(self, vector: Tensor) -> Tensor:
        """A small tensor of the description on this executor's device."""


class Pass:
    """One forward: values by name."""

    def __init__(self, loaded: Loaded, batch: ForwardBatch) -> None:
        self.of, self.batch = loaded, batch
        self.values: dict[str, Tensor] = {}
        self.found: dict[str, Tensor] = {}
        self.rows: list[int] | None = None

    def run(self) -> dict[str, Tensor]:
        for op in self.of.model.ops:
            getattr(self, type(op).__name__.lower())(op)
        return self.found

    def __getitem__(self, name: str) -> Tensor:
        return self.values[name]

    def embed(self, op: ops.Embed) -> None:
        table, batch = self.of.weights[op.table.key], self.batch
        rows = table.index_select(1, batch.tokens.clamp_min(0)).T.contiguous()
        rows = rows if op.scale == 1.0 else rows * op.scale
        if op.given:
            check_given(batch.given, op.table.k)
            write_rows(batch.given, rows)
        self.values[op.out] = rows

    def input(self, op: ops.Input) -> None:
        self.values[op.out] = self.batch.inputs[op.out].to(dtype=self.of.dtype, device=self.of.device)

    def norm(self, op: ops.Norm) -> None:
        pieces = self[op.x].unflatten(1, (-1, op.groups, len(op.weight) // op.groups))
        if op.centred:
            pieces = pieces - pieces.mean(-1, keepdim=True)
        weight = self.of.here(op.weight).view(op.groups, -1)
        rows = rms_norm(pieces, weight, op.eps).flatten(1)
        self.values[op.out] = rows if op.bias is None else rows + self.of.here(op.bias).to(rows.dtype)

    def linear(self, op: ops.Linear) -> None:
        for out, weight, bias in zip(op.outs, op.weights, op.biases, strict=True):
            matrix = self.of.weights[weight.key]
            y = product(self[op.x].to(matrix.dtype), matrix)
            if bias is not None:
                y = y + self.of.here(bias).to(y.dtype)
            self.values[out] = y if op.add is None else self[op.add] + y

    def headlinear(self, op: ops.HeadLinear) -> None:
        matrices = as_stack(self.of.weights[op.weight.key])
        heads = self[op.x].unflatten(1, (len(matrices), -1)).split([op.kept, op.weight.k], 2)
        products = [product(b.contiguous(), m) for b, m in zip(heads[1].unbind(1), matrices, strict=True)]
        self.values[op.out] = torch.cat([heads[0], torch.stack(products, 1)], 2).flatten(1)

    def glu(self, op: ops.GLU) -> None:
        self.values[op.out] = glu(op.act, self[op.gate], self[op.up], op.limit)

    def gate(self, op: ops.Gate) -> None:
        x = self[op.x]
        factors = GATES[op.by](self[op.gate]).to(x.dtype)
        parts = x.unflatten(1, (factors.shape[1], -1))
        self.values[op.out] = (parts * factors[:, :, None]).view_as(x)

    def add(self, op: ops.Add) -> None:
        total = self[op.x] + self[op.y]
        self.values[op.out] = total if op.scale == 1.0 else total * op.scale

    def addrelative(self, op: ops.AddRelative) -> None:
        x = self[op.x].float()
        sizes = x.square().mean(-1, keepdim=True).sqrt()
        self.values[op.x] = (x + sizes * self[op.y].float()).to(self.of.dtype)

    def scale(self, op: ops.Scale) -> None:
        self.values[op.x] = self[op.x] * op.by

    def softcap(self, op: ops.SoftCap) -> None:
        self.values[op.x] = tanh(self[op.x] / op.cap) * op.cap

    def blockconv(self, op: ops.BlockConv) -> None:
        x, base = self[op.x], self.of.here(op.base).to(self[op.x].dtype)
        taps = len(base)
        added = torch.zeros(1, taps, 1).to(x).expand(len(x), taps, 1)
        if op.kernel is not None:
            kernel = self[op.kernel].view(len(x), taps, -1)
            added = kernel.repeat_interleave(x.shape[1] // kernel.shape[2], 2)
        out = torch.zeros_like(x)
        for s in self.batch.sequences:
            for tap in range(min(taps, s.rows)):
                end = s.first + s.rows
                rows, before = slice(s.first + tap, end), slice(s.first, end - tap)
                out[rows] += x[before] * (base[tap] + added[rows, tap])
        self.values[op.out] = out

    def concat(self, op: ops.Concat) -> None:
        self.values[op.out] = torch.cat([self[x] for x in op.xs], 1)

    def columns(self, op: ops.Columns) -> None:
        self.values[op.out] = self[op.x][:, op.start : op.start + op.width].contiguous()

    def addrows(self, op: ops.AddRows) -> None:
        vectors = self.batch.added[op.index] if op.index < len(self.batch.added) else {}
        check_given(vectors, self[op.x].shape[1])
        if vectors:
            self.values[op.x] = x = self[op.x].clone()
            for row, vector in vectors.items():
                x[row] += vector.to(x)

    def rotate(self, op: ops.Rotate) -> None:
        heads, positions = self[op.x].unflatten(1, (-1, op.shape.dim)), self.batch.positions
        longest = max(s.end for s in self.batch.sequences)
        tables = self.of.cos_and_sin(op.shape.table, longest)
        if positions.dim() == 1:
            cos, sin = (m[positions, None] for m in tables)
        else:
            cos, sin = (m.T.gather(1, positions.T).T[:, None] for m in tables)
        a, b, rest = heads.split(
            [op.shape.rotary_dim // 2, op.shape.rotary_dim // 2, op.shape.dim - op.shape.rotary_dim], -1
        )
        rotated = torch.cat([a * cos - b * sin, a * sin + b * cos, rest.float()], -1)
        self.values[op.x] = rotated.to(heads.dtype).flatten(1)

    def store(self, op: ops.Store) -> None:
        for s in self.batch.sequences:
            if first := s.cache.first_of(op.layer):
                s.cache.check_read(s.start)
            rows, places = slice(s.first, s.first + s.rows), slice(s.start - first, s.end - first)
            for held, new in ((s.cache.keys, op.k), (s.cache.values, op.v)):
                if new is None:
                    continue
                held[op.layer][:, places] = self[new][rows].unflatten(1, (op.shape.kv_heads, -1)).transpose(0, 1)

    def attend(self, op: ops.Attend) -> None:
        q = self[op.q].unflatten(1, (op.shape.heads, -1))
        pieces = [self._attend_chain_or_tree(op, s, q[s.first : s.first + s.rows]) for s in self.batch.sequences]
        self.values[op.out] = torch.cat(pieces).flatten(1)

    def _attend_chain_or_tree(self, op: ops.Attend, rows: SequenceRows, q: Tensor) -> Tensor:
        """Attention of a chain at once; of a tree each node over its own path, so that sums equal plain decoding's."""
        keys, values, first = rows.cache.keys[op.layer], rows.cache.values[op.layer], rows.cache.first_of(op.layer)
        if first:
            rows.cache.check_read(rows.base - op.shape.window + 1 if op.shape.window and not op.shape.lead else 0)
        causal = op.causal and not rows.mutual
        chain = rows.rows if rows.parents is None or not causal else rows.pending
        last = None if causal else rows.end - 1
        sinks = None if op.sinks is None else self.of.here(op.sinks)
        anchor = rows.start if op.anchored else None
        seen = self._seen_positions(op, rows, range(chain), range(rows.start + 1, rows.start + chain + 1))
        out = [attention(q[:chain], keys, values, rows.start, op.shape, last, sinks, anchor, first, seen)]
        for row in range(chain, rows.rows):
            path = torch.tensor([*range(first, rows.base), *rows.path(row)], device=keys.device) - first
            path_rows = keys.index_select(1, path), values.index_select(1, path)
            at = first + len(path) - 1
            seen = self._seen_positions(op, rows, range(row, row + 1), range(at + 1, at + 2))
            out.append(attention(q[row : row + 1], *path_rows, at, op.shape, None, sinks, anchor, first, seen))
        return torch.cat(out)

    def _seen_positions(self, op: ops.Attend, s: SequenceRows, rows: range, ends: range) -> Tensor | None:
        """The positions that rows of a sequence attend to; None: all up to their own. ends: after each row's own."""
        if op.pools is None or not rows:
            return None
        pools = self[op.pools][s.first + rows.start : s.first + rows.stop]
        return seen_positions(pools, numbers(list(ends), pools.device), op.pool, ends[-1])

    def sparseindex(self, op: ops.SparseIndex) -> None:
        shape, base = op.shape, self.of.here(op.base)
        queries, weights = self[op.q].unflatten(1, (shape.heads, -1)), self[op.weights]
        chosen = []
        for s in self.batch.sequences:
            rows = s.cache.keys[op.layer][0]
            chain = pool_keys(rows[: s.base + s.pending], base)
            for i in range(s.rows):
                keys = chain[: (s.start + i + 1) // shape.pool]
                if s.parents is not None and i >= s.pending:
                    path = torch.tensor([*range(s.base), *s.path(i)], device=rows.device)
                    keys = pool_keys(rows[path], base)
                chosen.append(best_pools(queries[s.first + i], weights[s.first + i], keys, shape.used))
        self.values[op.out] = torch.stack(chosen).float()

    def delta(self, op: ops.Delta) -> None:
        now, s = self.batch.recurrence, op.shape
        here, x = self.of.here, self[op.qkv].float()
        mixed = silu(causal_conv(x, here(op.conv), now.pool.windows[op.layer], now.lineage))
        q, k, v = mixed.split([s.key_width, s.key_width, s.value_width], 1)
        q, k = (unit(m.unflatten(1, (s.key_heads, -1)), op.eps) for m in (q, k))
        q, v = q * s.key_dim**-0.5, v.unflatten(1, (s.value_heads, -1))
        steps = self[op.alpha].float() + here(op.dt)
        g = op.floor * sigmoid(-here(op.rate) * steps) if op.floor else here(op.rate) * softplus(steps)
        g = g.unflatten(1, (s.value_heads, -1)) if s.by_channel else g
        beta = op.strength * sigmoid(self[op.beta].float())
        states, key_of = now.pool.matrices[op.layer], s.key_of(x.device)
        o, d = gated_delta(q, k, v, g, beta, states, now.lineage, key_of)
        now.record(x, k, d, g)
        self.values[op.out] = o.flatten(1).to(self.of.dtype)

    def scan(self, op: ops.Scan) -> None:
        now, s = self.batch.recurrence, op.shape
        here, x = self.of.here, self[op.qkv].float()
        mixed = silu(causal_conv(x, here(op.conv), now.pool.windows[op.layer], now.lineage) + here(op.bias))
        q, k, v = mixed.split([s.key_width, s.key_width, s.value_width], 1)
        q, k, v = (m.unflatten(1, (heads, -1)) for m, heads in ((q, s.key_heads), (k, s.key_heads), (v, s.value_heads)))
        steps = softplus(self[op.step].float() + here(op.dt))
        states, key_of, g = now.pool.matrices[op.layer], s.key_of(x.device), here(op.rate) * steps
        o, d = scan(q, k, v, g, steps, states, now.lineage, key_of)
        now.record(x, k, d, g)
        self.values[op.out] = (o + here(op.skip)[:, None] * v).flatten(1).to(self.of.dtype)

    def shortconv(self, op: ops.ShortConv) -> None:
        now, x = self.batch.recurrence, (self[op.b] * self[op.x]).float()
        y = causal_conv(x, self.of.here(op.conv), now.pool.windows[op.layer], now.lineage)
        now.record(x)
        self.values[op.out] = self[op.c] * y.to(self.of.dtype)

    def mixture(self, op: ops.Mixture) -> None:
        bias, factors = (None if m is None else self.of.here(m) for m in (op.bias, op.factors))
        gate = None if op.gate is None else as_stack(self.of.weights[op.gate.key])
        up, down = (as_stack(self.of.weights[w.key]) for w in (op.up, op.down))
        biases = None if op.biases is None else tuple(map(self.of.here, op.biases))
        how = op.act, biases, factors, op.limit
        output = mixture(self[op.x], self[op.scores], op.experts, bias, (gate, up, down), *how)
        self.values[op.out] = output if op.add is None else self[op.add] + output

    def streamweights(self, op: ops.StreamWeights) -> None:
        self.values[op.out] = stream_weights(self[op.x], op.shape, self.of.here(op.base), self.of.here(op.scale))

    def streamsum(self, op: ops.StreamSum) -> None:
        self.values[op.out] = sum_streams(self[op.x], None if op.weights is None else self[op.weights], op.count)

    def streammix(self, op: ops.StreamMix) -> None:
        self.values[op.x] = mix_streams(self[op.x], self[op.y], self[op.weights], op.count)

    def clusters(self, op: ops.Clusters) -> None:
        scores = self[op.scores].float().nan_to_num(-torch.inf)
        best = scores.argsort(stable=True, dim=1, descending=True)[:, : op.used]
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, True)
        matrix = self.of.weights[op.weight.key]
        y = product(self[op.x].to(matrix.dtype), matrix)
        self.values[op.out] = y.masked_fill(~chosen.repeat_interleave(op.weight.n // scores.shape[1], 1), -torch.inf)

    def pick(self, op: ops.Pick) -> None:
        """Keep some rows. Rows are numbered as in the batch, so earlier picks are taken into account."""
        requested, have = getattr(self.batch, op.rows), self.rows
        if requested is not None:
            self.rows = list(requested)
            at = self.rows if have is None else [have.index(row) for row in self.rows]
            self.values[op.out] = self[op.x][at]
        else:
            self.values[op.out] = self[op.x]

    def tap(self, op: ops.Tap) -> None:
        if op.name in self.batch.taps:
            self.found[op.name] = self[op.x]


def as_stack(matrices: Tensor) -> Tensor:
    """[count, k, n], also of a single one."""
    return matrices if matrices.dim() == 3 else matrices[None]


def unit(heads: Tensor, eps: float) -> Tensor:
    """x / sqrt(Σ x² + eps) over the last dimension."""
    return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + eps)
