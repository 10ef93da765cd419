"""Lowers the description of a model to the native program; some neighbouring operations are fused.

Norm of heads + Rotate         -> heads
Norm of heads + Gate by silu   -> gated_norm
Linear + GLU                   -> one product over tiles of gate and up that alternate
Attend + Gate by sigmoid       -> attend
Linear (+ Scale, SoftCap) + Tap -> the product writes into the caller's memory
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spec_kernels.model import ops
from spec_kernels.model.ops import Model
from spec_kernels.model.shapes import DeltaShape
from spec_kernels.native import CACHES, instruction_sets, module
from spec_kernels.native.native_cache import CacheShape
from spec_kernels.native.weights import TILE, Arena, Tiles

HEADINGS = ("final", "logits")
ACTIVATIONS = ("silu", "gelu", "clamped", "relu", "limited")
"""Activations in the order of ``enum spec_glu``; the last is silu with a limit."""
FUNCTIONS = ("exp", "sigmoid", "silu", "softplus", "tanh", "identity")
"""Functions in the order of ``enum spec_function``."""


class Lowering:
    """Writes a program. Sizes of the model must have been checked (model/sizes.py, limits.py).

    ``taps`` are the names of its outputs, in order; ``widths`` their widths; ``bound`` the outputs that a product
    writes into the caller's memory, whose rows have room for whole tiles; ``added`` the widths of rows to add.
    """

    def __init__(self, model: Model, arena: Arena, bits: int, cache: str, isa: str | None) -> None:
        """bits: of rows in products with quantised weights. cache: its type. isa: None means the best."""
        self.model, self.arena, self.bits = model, arena, bits
        self.program = module().Program(isa or instruction_sets()[0], 1)
        self.taps: list[str] = []
        self.bound: list[str] = []
        self.widths: list[int] = []
        self.added: list[int] = []
        self.inputs: list[str] = []
        self._values: dict[tuple[str, int], int] = {}
        self._now: dict[str, tuple[int, int]] = {}  # name -> value, width
        self._qrows: dict[tuple[int, int], int] = {}
        self._quantised: set[tuple[str, int]] = set()
        self._kept: list[Tensor] = []  # keeps small tensors alive until they are copied
        self._memory(CACHES.index(cache))
        self._write(list(model.ops))

    def _memory(self, kind: int) -> None:
        if self.model.cached:
            self.shape = CacheShape(kind, self.model.cached)
            self.program.memory(*self.shape.arguments, bool(self.model.borrowed))
        if self.model.recurrent is not None:
            self.program.recurrence(*recurrence(self.model))

    def _write(self, rest: list[ops.Op]) -> None:
        """Write all operations. A method takes one and the next ones, and returns how many of these it has fused."""
        at = 0
        while at < len(rest):
            op = rest[at]
            more = getattr(self, type(op).__name__.lower())(op, rest[at + 1 :][:3])
            at += 1 + (more or 0)

    # values

    def value_index(self, name: str, width: int) -> int:
        """The value of a name, to be written; its earlier quantised rows are dropped."""
        if (name, width) not in self._values:
            self._values[name, width] = self.program.value(width)
        self._now[name] = self._values[name, width], width
        self._quantised = {(n, b) for n, b in self._quantised if n != name}
        return self._now[name][0]

    def index_of(self, name: str) -> int:
        return self._now[name][0]

    def width(self, name: str) -> int:
        return self._now[name][1]

    def qrows(self, name: str, bits: int) -> int:
        """Quantised rows of a value, made here unless they exist."""
        key = self.width(name), bits
        if key not in self._qrows:
            self._qrows[key] = self.program.qrows(*key)
        if (name, bits) not in self._quantised:
            self._quantised = {(n, b) for n, b in self._quantised if (self.width(n), b) != key} | {(name, bits)}
            self.program.quantise(self.index_of(name), self._qrows[key])
        return self._qrows[key]

    def vector(self, values: Tensor | None) -> int:
        """The address of float32 numbers, which C copies."""
        if values is None:
            return 0
        self._kept.append(values.float().contiguous())
        return self._kept[-1].data_ptr()

    def activation_bits(self, tiles: Tiles) -> int:
        return 32 if tiles.floats else self.bits

    # operations

    def embed(self, op: ops.Embed, after: list[Any]) -> None:
        tiles = self.arena[(op.table,)]
        self.program.embed(self.value_index(op.out, tiles.k), tiles.handle, op.scale, not op.given)

    def input(self, op: ops.Input, after: list[Any]) -> None:
        self.inputs.append(op.out)
        self.program.input(self.value_index(op.out, op.width), op.width)

    def norm(self, op: ops.Norm, after: list[Any]) -> int:
        width, dim = self.width(op.x), len(op.weight)
        weight = self.vector(op.weight)
        follower = after[0] if after else None
        whole = op.groups == 1 and not op.centred
        if whole and self._gates(follower, op.out, width, "silu"):
            x, z, heads = self.index_of(op.x), self.index_of(follower.gate), width // dim
            self.program.gated_norm(x, z, self.value_index(op.out, width), heads, dim, weight, op.eps)
            return 1
        if dim == width:
            x = self.index_of(op.x)
            how = (op.eps, op.groups, op.centred, self.vector(op.bias))
            self.program.norm(x, self.value_index(op.out, width), weight, width, *how)
            return 0
        if op.x != op.out:
            raise NotImplementedError(f"a norm of heads from {op.x} to {op.out}")
        rotates = isinstance(follower, ops.Rotate) and follower.x == op.out and follower.shape.dim == dim
        turn = (follower.shape.rotary_dim, follower.shape.table) if rotates else (0, 0)
        self.program.heads(self.value_index(op.out, width), width // dim, dim, weight, op.eps, *turn)
        return int(rotates)

    def rotate(self, op: ops.Rotate, after: list[Any]) -> None:
        width, shape = self.width(op.x), op.shape
        turn = shape.rotary_dim, shape.table
        self.program.heads(self.value_index(op.x, width), width // shape.dim, shape.dim, 0, 0.0, *turn)

    def store(self, op: ops.Store, after: list[Any]) -> None:
        v = -1 if op.v is None else self.index_of(op.v)
        self.program.store(self.index_of(op.k), v, op.layer, op.shape.kv_heads)

    def attend(self, op: ops.Attend, after: list[Any]) -> int:
        gated = bool(after) and self._gates(after[0], op.out, op.shape.out_width, "sigmoid")
        gate = self.index_of(after[0].gate) if gated else -1
        s, q = op.shape, self.index_of(op.q)
        pools = -1 if op.pools is None else self.index_of(op.pools)
        out = self.value_index(op.out, s.out_width)
        numbers = (
            op.layer,
            s.heads,
            s.kv_heads,
            s.dim,
            s.window,
            s.lead,
            s.scale,
            op.causal,
            s.cap,
            self.vector(op.sinks),
            op.anchored,
            pools,
            op.pool,
        )
        self.program.attend(q, gate, out, *numbers)
        return int(gated)

    def sparseindex(self, op: ops.SparseIndex, after: list[Any]) -> None:
        q, weights, s = self.index_of(op.q), self.index_of(op.weights), op.shape
        sizes = (op.layer, s.heads, s.dim, s.pool, s.used, self.vector(op.base))
        self.program.choose_pools(q, weights, self.value_index(op.out, s.used), *sizes)

    def streamweights(self, op: ops.StreamWeights, after: list[Any]) -> None:
        x, s, vectors = self.index_of(op.x), op.shape, (self.vector(op.base), self.vector(op.scale))
        self.program.stream_weights(x, self.value_index(op.out, s.weights), s.count, s.eps, s.rounds, *vectors)

    def streamsum(self, op: ops.StreamSum, after: list[Any]) -> None:
        x, width = self.index_of(op.x), self.width(op.x) // op.count
        weights = -1 if op.weights is None else self.index_of(op.weights)
        self.program.stream_sum(x, weights, self.value_index(op.out, width), op.count, width)

    def streammix(self, op: ops.StreamMix, after: list[Any]) -> None:
        width, y, weights = self.width(op.x) // op.count, self.index_of(op.y), self.index_of(op.weights)
        self.program.stream_mix(self._index_to_change(op.x), y, weights, op.count, width)

    def _gates(self, op: Any, name: str, width: int, by: str) -> bool:
        """Whether an operation gates a value in place, element by element."""
        gates = isinstance(op, ops.Gate) and op.x == name == op.out and op.by == by
        return gates and op.gate != name and self.width(op.gate) == width

    def linear(self, op: ops.Linear, after: list[Any]) -> int:
        together = bool(after) and isinstance(after[0], ops.GLU) and op.outs == (after[0].gate, after[0].up)
        if together and self.arena.is_paired(*op.weights):
            return self._pair(op, after[0])
        parts: dict[int, list[tuple[Any, int, int]]] = {}
        add = -1 if op.add is None else self.index_of(op.add)
        for out, weight, bias in zip(op.outs, op.weights, op.biases, strict=True):
            tiles = self.arena[(weight,)]
            bound = self._bound(op, out, after)
            at = self.value_index(out, tiles.n) if bound is None else bound
            parts.setdefault(self.activation_bits(tiles), []).append((tiles.handle, at, self.vector(bias)))
        for bits, some in parts.items():
            self.program.linear(self.qrows(op.x, bits), tuple(some), add, False, 0, 0.0)
        return 0

    def headlinear(self, op: ops.HeadLinear, after: list[Any]) -> None:
        tiles, x, w = self.arena[(op.weight,)], self.index_of(op.x), op.weight
        out = self.value_index(op.out, w.count * (op.kept + w.n))
        stack = (tiles.handle, tiles.nbytes)
        self.program.head_linear(x, out, stack, w.count, op.kept, self.activation_bits(tiles))

    def _bound(self, op: ops.Linear, out: str, after: list[Any]) -> int | None:
        """A value in the caller's memory, if the product's only reader is the tap after it."""
        while after and isinstance(after[0], ops.Scale | ops.SoftCap) and after[0].x == out:
            after = after[1:]
        if len(op.outs) > 1 or not after or not isinstance(after[0], ops.Tap) or after[0].x != out or after[1:]:
            return None
        value = self.program.value(op.weights[0].n)
        self._now[out] = value, op.weights[0].n
        self.program.bind(value, len(self.taps))
        self.bound.append(after[0].name)
        return value

    def _pair(self, op: ops.Linear, glu: ops.GLU) -> int:
        tiles, by = self.arena[op.weights], activation(glu)
        qrows = self.qrows(op.x, self.activation_bits(tiles))
        part = tiles.handle, self.value_index(glu.out, op.weights[0].n), 0
        self.program.linear(qrows, (part,), -1, True, by, glu.limit)
        return 1

    def glu(self, op: ops.GLU, after: list[Any]) -> None:
        gate, up, width = self.index_of(op.gate), self.index_of(op.up), self.width(op.up)
        self.program.glu(gate, up, self.value_index(op.out, width), width, activation(op), op.limit)

    def add(self, op: ops.Add, after: list[Any]) -> None:
        first, second = (op.y, op.x) if op.out == op.y else (op.x, op.y)  # C copies the first to ``out``
        x, y, width = self.index_of(first), self.index_of(second), self.width(op.x)
        self.program.add(x, y, self.value_index(op.out, width), width, op.scale)

    def addrelative(self, op: ops.AddRelative, after: list[Any]) -> None:
        self.program.add_relative(self._index_to_change(op.x), self.index_of(op.y), self.width(op.x))

    def softcap(self, op: ops.SoftCap, after: list[Any]) -> None:
        self.program.softcap(self._index_to_change(op.x), self.width(op.x), op.cap)

    def scale(self, op: ops.Scale, after: list[Any]) -> None:
        self.program.scale(self._index_to_change(op.x), self.width(op.x), op.by)

    def _index_to_change(self, name: str) -> int:
        """The value of a name, which changes in its own memory; its quantised rows are dropped."""
        self._quantised = {(n, b) for n, b in self._quantised if n != name}
        return self.index_of(name)

    def gate(self, op: ops.Gate, after: list[Any]) -> None:
        if op.x != op.out:
            raise NotImplementedError(f"a gate from {op.x} to {op.out}")
        gate, width = self.index_of(op.gate), self.width(op.x)
        self.program.gate(self.value_index(op.x, width), gate, width, FUNCTIONS.index(op.by))

    def blockconv(self, op: ops.BlockConv, after: list[Any]) -> None:
        x, width, taps = self.index_of(op.x), self.width(op.x), len(op.base)
        kernel, groups = -1, 1
        if op.kernel is not None:
            kernel, groups = self.index_of(op.kernel), self.width(op.kernel) // taps
        out = self.value_index(op.out, width)
        self.program.block_conv(x, kernel, out, width, taps, groups, self.vector(op.base))

    def concat(self, op: ops.Concat, after: list[Any]) -> None:
        xs = tuple(self.index_of(x) for x in op.xs)
        self.program.concat(xs, self.value_index(op.out, sum(self.width(x) for x in op.xs)))

    def columns(self, op: ops.Columns, after: list[Any]) -> None:
        x = self.index_of(op.x)
        self.program.columns(x, self.value_index(op.out, op.width), op.start, op.width)

    def addrows(self, op: ops.AddRows, after: list[Any]) -> None:
        width = self.width(op.x)
        self.added += [width] * (op.index + 1 - len(self.added))
        self.program.add_rows(self.index_of(op.x), op.index, width)

    def delta(self, op: ops.Delta, after: list[Any]) -> None:
        beta, alpha = self.index_of(op.beta), self.index_of(op.alpha)
        self._recur(op, None, alpha, beta, (op.eps, op.shape.key_dim**-0.5, op.strength, op.floor), None)

    def scan(self, op: ops.Scan, after: list[Any]) -> None:
        self._recur(op, op.bias, self.index_of(op.step), -1, (0.0, 0.0, 1.0, 0.0), op.skip)

    def _recur(
        self,
        op: ops.Delta | ops.Scan,
        bias: Tensor | None,
        alpha: int,
        beta: int,
        unit: tuple[float, float, float, float],
        skip: Tensor | None,
    ) -> None:
        """A convolution and the recurrence after it. unit: eps of unit lengths, the scale of q, the factor of beta,
        the lowest logarithm of a decay."""
        s, p, x = op.shape, self.program, self.index_of(op.qkv)
        mixed = self.value_index("delta.qkv", s.channels)
        rates = self.value_index("delta.rates", s.decays + s.value_heads)
        d, o = self.value_index("delta.d", s.value_width), self.value_index(op.out, s.value_width)
        p.conv(x, -1, mixed, op.layer, self.vector(op.conv), self.vector(bias))
        p.rates(mixed, rates, alpha, beta, self.vector(op.rate), self.vector(op.dt), *unit)
        p.delta(x, mixed, rates, o, d, op.layer, self.vector(skip))

    def shortconv(self, op: ops.ShortConv, after: list[Any]) -> None:
        b, c, x = (self.index_of(name) for name in (op.b, op.c, op.x))
        mixed = self.value_index("conv.x", op.shape.channels)
        self.program.multiply(b, x, mixed, op.shape.channels)
        self.program.conv(mixed, c, self.value_index(op.out, op.shape.channels), op.layer, self.vector(op.conv), 0)

    def mixture(self, op: ops.Mixture, after: list[Any]) -> None:
        e, up, down = op.experts, self.arena[op.inputs], self.arena[(op.down,)]
        x, scores = self.index_of(op.x), self.index_of(op.scores)
        add = -1 if op.add is None else self.index_of(op.add)
        vectors = self.vector(op.bias), self.vector(op.factors)
        router = (e.count, e.used, e.normalise, e.sigmoid, e.groups, e.groups_used, e.scale, *vectors)
        stacks = ((up.handle, up.nbytes), (down.handle, down.nbytes))
        out, act = self.value_index(op.out, self.width(op.x)), activation(op)
        biases = tuple(self.vector(in_tiles(bias)) for bias in op.biases or ()) or (0, 0, 0)
        bits = self.activation_bits(up), self.activation_bits(down)
        self.program.mixture(x, scores, add, out, *bits, *stacks, router, act, biases, op.gate is not None, op.limit)

    def clusters(self, op: ops.Clusters, after: list[Any]) -> None:
        tiles, scores = self.arena[(op.weight,)], self.index_of(op.scores)
        qrows = self.qrows(op.x, self.activation_bits(tiles))
        self.program.clusters(
            qrows, scores, self.value_index(op.out, tiles.n), tiles.handle, self.width(op.scores), op.used
        )

    def pick(self, op: ops.Pick, after: list[Any]) -> None:
        x = self.index_of(op.x)
        self.program.pick(x, self.value_index(op.out, self.width(op.x)), HEADINGS.index(op.rows))

    def tap(self, op: ops.Tap, after: list[Any]) -> None:
        self.program.tap(self.index_of(op.x), len(self.taps))
        self.taps.append(op.name)
        self.widths.append(self.width(op.x))


def activation(op: ops.GLU | ops.Mixture) -> int:
    """Number of an activation in ``enum spec_glu``."""
    return ACTIVATIONS.index("limited" if op.limit else op.act)


def in_tiles(rows: Tensor) -> Tensor:
    """Rows padded with zeros to whole tiles."""
    return torch.nn.functional.pad(rows, (0, -rows.shape[-1] % TILE))


def recurrence(model: Model) -> tuple[int, ...]:
    """Sizes of recurrent layers as C needs them; the last is the address of numbers that stay alive."""
    s = model.recurrent
    sizes = model.recurring, s.kernel, s.channels
    if isinstance(s, DeltaShape):
        return *sizes, s.key_heads, *s.matrices, s.decays, _key_of(s).data_ptr()
    return *sizes, 0, *s.matrices, 0, 0


_KEYS: dict[Any, Tensor] = {}


def _key_of(shape: Any) -> Tensor:
    """int32 [Hv], made once for every shape."""
    if shape not in _KEYS:
        _KEYS[shape] = shape.key_of().to(torch.int32)
    return _KEYS[shape]
