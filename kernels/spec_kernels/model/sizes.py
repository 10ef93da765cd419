"""Checks every size in a description before an executor is made.

The native program trusts the sizes of an operation when it reads and writes: inconsistent sizes must be found here.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from spec_kernels.model import ops
from spec_kernels.model.ops import Model, Weight
from spec_kernels.model.shapes import DeltaShape, HeadShape, RecurrentShape

ADDED_MAX = 16
"""Max number of AddRows in a model."""


def check_sizes(model: Model) -> None:
    """Raise ValueError for inconsistent sizes, with the operation's name, the size found and the size needed."""
    sizes = Sizes(model)
    for op in model.ops:
        getattr(sizes, type(op).__name__.lower())(op)


def need_equal(op: str, what: str, actual: Any, needed: Any) -> None:
    """Raise ValueError unless both are equal."""
    if actual != needed:
        raise ValueError(f"{op}: {what} is {actual}, {needed} is needed")


class Sizes:
    """One method per operation: it checks the widths read, and records the width written."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.widths: dict[str, int] = {}
        self.picked: set[str] = set()
        self.table: int | None = None

    def read(self, op: str, name: str) -> int:
        """The width of a value."""
        if name not in self.widths:
            raise ValueError(f"{op}: it reads {name!r}, which no earlier operation writes")
        return self.widths[name]

    def wide(self, op: str, name: str, width: int) -> None:
        need_equal(op, f"the width of {name!r}", self.read(op, name), width)

    # rows from outside, and back

    def embed(self, op: ops.Embed) -> None:
        one(f"Embed of {op.out!r}", op.table)
        if not op.given and self.table is None:
            raise ValueError(f"Embed of {op.out!r}: the first embedding takes the rows given in place of tokens")
        if self.table is not None:
            need_equal(f"Embed of {op.out!r}", "the number of tokens", op.table.n, self.table)
        self.table, self.widths[op.out] = op.table.n, op.table.k

    def input(self, op: ops.Input) -> None:
        if op.width < 1:
            raise ValueError(f"Input of {op.out!r}: the width is {op.width}, min 1")
        self.widths[op.out] = op.width

    def pick(self, op: ops.Pick) -> None:
        """Rows of ``logits`` are a subset of ``final`` rows; picking drops all others."""
        if op.rows == "final" and "logits" in self.picked:
            raise ValueError(f"Pick of {op.x!r}: 'final' rows are picked after 'logits' rows, they must come first")
        self.widths[op.out] = self.read(f"Pick of {op.x!r}", op.x)
        self.picked.add(op.rows)

    def tap(self, op: ops.Tap) -> None:
        """Outputs after a Pick have memory for the picked rows only."""
        self.read(f"Tap {op.name!r}", op.x)
        before = {"final": {"final"}, "logits": {"final", "logits"}}.get(op.name, set())
        for rows in sorted(before - self.picked):
            raise ValueError(f"Tap {op.name!r}: it precedes the Pick of {rows!r} rows, it must follow it")

    # products

    def linear(self, op: ops.Linear) -> None:
        name = f"Linear of {op.x!r}"
        need_equal(name, "the number of outputs", len(op.outs), len(op.weights))
        need_equal(name, "the number of biases", len(op.biases), len(op.weights))
        if op.add is not None:
            need_equal(name, "the number of matrices of a sum", len(op.weights), 1)
            self.wide(name, op.add, op.weights[0].n)
        for weight, bias in zip(op.weights, op.biases, strict=True):
            one(name, weight)
            self.wide(name, op.x, weight.k)
            if bias is not None:
                need_equal(name, f"the shape of the bias of {weight.name!r}", tuple(bias.shape), (weight.n,))
        self.widths |= {out: weight.n for out, weight in zip(op.outs, op.weights, strict=True)}

    def headlinear(self, op: ops.HeadLinear) -> None:
        name, w = f"HeadLinear of {op.x!r}", op.weight
        if op.kept < 0:
            raise ValueError(f"{name}: {op.kept} numbers of a head stay as they are, 0 or more are possible")
        if op.out == op.x:
            raise ValueError(f"{name}: it writes {op.out!r}, which it reads in other columns")
        self.wide(name, op.x, w.count * (op.kept + w.k))
        self.widths[op.out] = w.count * (op.kept + w.n)

    def mixture(self, op: ops.Mixture) -> None:
        name, width, e = f"Mixture of {op.x!r}", self.read(f"Mixture of {op.x!r}", op.x), op.experts
        self.wide(name, op.scores, e.count)
        if op.add is not None:
            self.wide(name, op.add, width)
        inner = op.inputs[0].n
        check_limit(name, op)
        if op.gate is None:
            need_equal(name, "the biases without a gate", op.biases, None)
        for weight, shape in (*((weight, (inner, width)) for weight in op.inputs), (op.down, (width, inner))):
            need_equal(name, f"the shape of {weight.name!r}", (weight.n, weight.k), shape)
            need_equal(name, f"the number of matrices of {weight.name!r}", weight.count, e.count)
        for what, vector in (("bias", op.bias), ("factors", op.factors)):
            if vector is not None:
                need_equal(name, f"the shape of the {what}", tuple(vector.shape), (e.count,))
        for bias, weight in zip(op.biases or (), ops.weights_of(op), strict=False):
            need_equal(name, f"the shape of the bias of {weight.name!r}", tuple(bias.shape), (e.count, weight.n))
        if not (1 <= e.used <= e.count and 1 <= e.groups_used <= e.groups and e.count % e.groups == 0):
            counts = f"{e.used} of {e.count} experts, {e.groups_used} of {e.groups} groups"
            raise ValueError(f"{name}: {counts} are chosen; needed are at most all, in groups of equal size")
        self.widths[op.out] = width

    def clusters(self, op: ops.Clusters) -> None:
        name = f"Clusters of {op.x!r}"
        one(name, op.weight)
        self.wide(name, op.x, op.weight.k)
        count = self.read(name, op.scores)
        pieces(name, f"the number of rows of {op.weight.name!r}", op.weight.n, count)
        if not 1 <= op.used <= count:
            raise ValueError(f"{name}: {op.used} of {count} clusters are used, 1 to {count} are possible")
        self.widths[op.out] = op.weight.n

    # element by element

    def norm(self, op: ops.Norm) -> None:
        name, width = f"Norm of {op.x!r}", self.read(f"Norm of {op.x!r}", op.x)
        need_equal(name, "the number of dimensions of the weight", op.weight.dim(), 1)
        pieces(name, f"the width of {op.x!r}", width, len(op.weight))
        pieces(name, "the width of the weight", len(op.weight), op.groups)
        if op.groups > 1 or op.centred:
            need_equal(name, "the width of the weight", len(op.weight), width)
        if op.bias is not None:
            need_equal(name, "a centred row, to which a bias is added,", op.centred, True)
            need_equal(name, "the shape of the bias", vector_shape(op.bias), (width,))
        self.widths[op.out] = width

    def glu(self, op: ops.GLU) -> None:
        width = self.read(f"GLU of {op.gate!r}", op.gate)
        self.wide(f"GLU of {op.gate!r}", op.up, width)
        check_limit(f"GLU of {op.gate!r}", op)
        self.widths[op.out] = width

    def add(self, op: ops.Add) -> None:
        width = self.read(f"Add of {op.x!r}", op.x)
        self.wide(f"Add of {op.x!r}", op.y, width)
        self.widths[op.out] = width

    def addrelative(self, op: ops.AddRelative) -> None:
        width = self.read(f"AddRelative of {op.x!r}", op.x)
        self.wide(f"AddRelative of {op.x!r}", op.y, width)

    def columns(self, op: ops.Columns) -> None:
        width = self.read(f"Columns of {op.x!r}", op.x)
        if op.start < 0 or op.width < 1 or op.start + op.width > width:
            raise ValueError(
                f"Columns of {op.x!r}: {op.start} to {op.start + op.width - 1} are needed, it has 0 to {width - 1}"
            )
        self.widths[op.out] = op.width

    def addrows(self, op: ops.AddRows) -> None:
        self.read(f"AddRows of {op.x!r}", op.x)
        if not 0 <= op.index < ADDED_MAX:
            raise ValueError(f"AddRows of {op.x!r}: index {op.index}, it is 0 to {ADDED_MAX - 1}")

    def blockconv(self, op: ops.BlockConv) -> None:
        name, width = f"BlockConv of {op.x!r}", self.read(f"BlockConv of {op.x!r}", op.x)
        need_equal(name, "the number of dimensions of the base", op.base.dim(), 2)
        need_equal(name, "the width of the base", op.base.shape[1], width)
        if op.out in (op.x, op.kernel):
            raise ValueError(f"{name}: it writes {op.out!r}, which it reads in other rows")
        if op.kernel is not None:
            kernel = self.read(name, op.kernel)
            pieces(name, f"the width of {op.kernel!r}", kernel, len(op.base))
            pieces(name, "the width of the stream", width, kernel // len(op.base))
        self.widths[op.out] = width

    def scale(self, op: ops.Scale) -> None:
        self.read(f"Scale of {op.x!r}", op.x)
        if not math.isfinite(op.by):
            raise ValueError(f"Scale of {op.x!r}: the factor is {op.by}, a finite number is needed")

    def softcap(self, op: ops.SoftCap) -> None:
        self.read(f"SoftCap of {op.x!r}", op.x)
        if not 0 < op.cap < math.inf:
            raise ValueError(f"SoftCap of {op.x!r}: the cap is {op.cap}, a positive number is needed")

    def gate(self, op: ops.Gate) -> None:
        width = self.read(f"Gate of {op.x!r}", op.x)
        name = f"Gate of {op.x!r}"
        pieces(name, f"the width of {op.x!r}", width, self.read(name, op.gate))
        self.widths[op.out] = width

    def concat(self, op: ops.Concat) -> None:
        if not op.xs:
            raise ValueError(f"Concat of {op.out!r}: it joins 0 values, min 1")
        self.widths[op.out] = sum(self.read(f"Concat of {op.out!r}", x) for x in op.xs)

    # attention

    def rotate(self, op: ops.Rotate) -> None:
        name, tables = f"Rotate of {op.x!r}", self.model.tables
        pieces(name, f"the width of {op.x!r}", self.read(name, op.x), op.shape.dim)
        need_equal(
            name,
            "the number of rotated dimensions",
            op.shape.rotary_dim,
            2 * len(tables[op.shape.table][0]) if 0 <= op.shape.table < len(tables) else 0,
        )
        if op.shape.rotary_dim > op.shape.dim:
            raise ValueError(f"{name}: {op.shape.rotary_dim} dimensions of a head rotate, but it has {op.shape.dim}")

    def store(self, op: ops.Store) -> None:
        name = f"Store of {op.k!r}"
        self._check_cache(name, op.shape, op.layer)
        need_equal(name, "a value apart from the key", op.v is not None, not op.shape.latent)
        for value in filter(None, (op.k, op.v)):
            self.wide(name, value, op.shape.kv_width)

    def attend(self, op: ops.Attend) -> None:
        name, shape = f"Attend of {op.q!r}", op.shape
        self._check_cache(name, shape, op.layer)
        pieces(name, "the number of query heads", shape.heads, shape.kv_heads)
        self.wide(name, op.q, shape.q_width)
        if op.sinks is not None:
            need_equal(name, "the shape of the sinks", vector_shape(op.sinks), (shape.heads,))
        if not 0 <= shape.cap < math.inf:
            raise ValueError(f"{name}: the cap of scores is {shape.cap}, 0 or more is needed")
        if op.pools is not None:
            self.read(name, op.pools)
            plain = not (shape.window or shape.cap or op.anchored) and op.causal
            need_equal(name, "pools of positions, without a window, a cap or rows that see later ones,", plain, True)
            if op.pool < 1:
                raise ValueError(f"{name}: pools of {op.pool} positions, min 1")
        self.widths[op.out] = shape.out_width

    def sparseindex(self, op: ops.SparseIndex) -> None:
        name, s = f"SparseIndex of {op.q!r}", op.shape
        if min(s.heads, s.dim, s.pool, s.used) < 1:
            raise ValueError(f"{name}: {s.heads} heads of {s.dim} choose {s.used} pools of {s.pool}, min 1 of each")
        self._check_cache(name, s.stored, op.layer)
        self.wide(name, op.q, s.heads * s.dim)
        self.wide(name, op.weights, s.heads)
        need_equal(name, "the shape of the base", tuple(op.base.shape), (s.pool, s.dim))
        self.widths[op.out] = s.used

    def _check_cache(self, name: str, shape: HeadShape, layer: int) -> None:
        """Check that keys and values have the shape that the layer has in the cache."""
        layers = self.model.cached
        if not layers:
            raise ValueError(f"{name}: no operation stores keys and values")
        need_inside(name, layer, len(layers))
        cached = layers[layer]
        need_equal(name, "(key heads, head width)", (shape.kv_heads, shape.dim), (cached.kv_heads, cached.dim))
        need_equal(name, "the number of latent numbers", shape.latent, cached.latent)
        if shape.latent and not (shape.kv_heads == 1 and 0 < shape.latent <= shape.dim):
            latents = f"{shape.latent} numbers of {shape.kv_heads} keys of {shape.dim} are their values"
            raise ValueError(f"{name}: {latents}; one key with at most all of its numbers is possible")

    # recurrent layers

    def delta(self, op: ops.Delta) -> None:
        name, s = f"Delta of {op.qkv!r}", op.shape
        self._check_state(name, s, op.conv, op.layer)
        check_value_heads(name, s)
        self.wide(name, op.qkv, s.channels)
        self.wide(name, op.beta, s.value_heads)
        self.wide(name, op.alpha, s.decays)
        if not 0 < op.strength <= 2:
            raise ValueError(f"{name}: the strength is {op.strength}, above 2 a state grows without bounds")
        if not -math.inf < op.floor <= 0:
            raise ValueError(f"{name}: the lowest logarithm of a decay is {op.floor}, 0 or less is needed")
        for what, vector in (("rate", op.rate), ("dt", op.dt)):
            need_equal(name, f"the shape of {what}", vector_shape(vector), (s.decays,))
        self.widths[op.out] = s.value_width

    # streams

    def streamweights(self, op: ops.StreamWeights) -> None:
        name, s = f"StreamWeights of {op.x!r}", op.shape
        if s.count < 1 or s.rounds < 1 or not 0 <= s.eps < math.inf:
            raise ValueError(f"{name}: {s.count} streams, {s.rounds} rounds, eps {s.eps}; needed are 1 or more of each")
        self.wide(name, op.x, s.weights)
        need_equal(name, "the shape of the base", vector_shape(op.base), (s.weights,))
        need_equal(name, "the shape of the scale", vector_shape(op.scale), (3,))
        self.widths[op.out] = s.weights

    def streamsum(self, op: ops.StreamSum) -> None:
        name, width = f"StreamSum of {op.x!r}", self.read(f"StreamSum of {op.x!r}", op.x)
        pieces(name, f"the width of {op.x!r}", width, op.count)
        if op.weights is not None and self.read(name, op.weights) < op.count:
            raise ValueError(f"{name}: {op.weights!r} has {self.widths[op.weights]} weights for {op.count} streams")
        self.widths[op.out] = width // op.count

    def streammix(self, op: ops.StreamMix) -> None:
        name, width = f"StreamMix of {op.x!r}", self.read(f"StreamMix of {op.x!r}", op.x)
        pieces(name, f"the width of {op.x!r}", width, op.count)
        self.wide(name, op.y, width // op.count)
        self.wide(name, op.weights, (2 + op.count) * op.count)

    def scan(self, op: ops.Scan) -> None:
        name, s = f"Scan of {op.qkv!r}", op.shape
        self._check_state(name, s, op.conv, op.layer)
        check_value_heads(name, s)
        need_equal(name, "a decay of every channel", s.by_channel, False)
        self.wide(name, op.qkv, s.channels)
        self.wide(name, op.step, s.value_heads)
        need_equal(name, "the shape of the bias", vector_shape(op.bias), (s.channels,))
        for what, vector in (("rate", op.rate), ("dt", op.dt), ("skip", op.skip)):
            need_equal(name, f"the shape of {what}", vector_shape(vector), (s.value_heads,))
        self.widths[op.out] = s.value_width

    def shortconv(self, op: ops.ShortConv) -> None:
        name, s = f"ShortConv of {op.x!r}", op.shape
        self._check_state(name, s, op.conv, op.layer)
        for value in (op.b, op.c, op.x):
            self.wide(name, value, s.channels)
        self.widths[op.out] = s.channels

    def _check_state(self, name: str, shape: RecurrentShape, conv: Tensor, layer: int) -> None:
        """All layers share one pool of states, so their shapes must be equal."""
        need_equal(name, "the shape of the layer", shape, self.model.recurrent)
        need_inside(name, layer, self.model.recurring)
        need_equal(name, "the shape of conv", tuple(conv.shape), (shape.kernel, shape.channels))


def one(name: str, weight: Weight) -> None:
    """Check that a product or table has a single matrix."""
    need_equal(name, f"the number of matrices of {weight.name!r}", weight.count, 1)


def check_limit(name: str, op: ops.GLU | ops.Mixture) -> None:
    """Check the limit of gate and up, which silu alone has."""
    if not 0 <= op.limit < math.inf:
        raise ValueError(f"{name}: the limit of gate and up is {op.limit}, 0 or more is needed")
    if op.limit:
        need_equal(name, "the activation with a limit", op.act, "silu")


def pieces(name: str, what: str, whole: int, piece: int) -> None:
    """Raise ValueError unless ``whole`` is a multiple of ``piece``."""
    if piece < 1 or whole % piece:
        raise ValueError(f"{name}: {what} is {whole}, a multiple of {piece} is needed")


def need_inside(name: str, layer: int, layers: int) -> None:
    if not 0 <= layer < layers:
        raise ValueError(f"{name}: the layer is {layer}, the model has 0 to {layers - 1}")


def check_value_heads(name: str, shape: DeltaShape) -> None:
    """Check that value heads are a multiple of key heads."""
    pieces(name, "the number of value heads", shape.value_heads, shape.key_heads)


def vector_shape(vector: Tensor) -> tuple[int, ...]:
    return tuple(vector.shape)
