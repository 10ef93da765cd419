"""The operations of a model over named values: rows [R, width], a row for every token of a forward.

A model is a list of these, read from top to bottom. Names of values are free to be written again. ``x``, where an
operation has one, is what it reads. All arithmetic is that of the formula in its docstring; how many rows there are,
and whose, an operation does not know, except those that look at other rows: ``Store``, ``Attend``, ``Delta``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from spec_kernels.model.shapes import DeltaShape, Experts, HeadShape

Rows = Literal["logits", "final"]


@dataclass(frozen=True, eq=False)
class Weight:
    """``count`` matrices [n, k] of a stored tensor; made of floats when an executor reads it, or of blocks.

    rows: int64 [n], which rows of each stored matrix, in this order; None is all of them as they lie.
    wide: used in float32 where the model runs in less.
    """

    name: str
    n: int
    k: int
    rows: Tensor | None = None
    count: int = 1
    wide: bool = False

    @property
    def key(self) -> tuple[str, bytes | None]:
        """Equal for weights that are the same numbers."""
        return self.name, None if self.rows is None else self.rows.numpy().tobytes()


@dataclass(frozen=True, eq=False)
class Embed:
    """out = table[token], or the row that the caller gave in the token's place."""

    out: str
    table: Weight


@dataclass(frozen=True, eq=False)
class Input:
    """out = rows that the caller brings under this name."""

    out: str
    width: int


@dataclass(frozen=True, eq=False)
class Norm:
    """out = x / sqrt(mean(x²) + eps) · weight, over pieces of the weight's width: a row, or each head of it."""

    x: str
    out: str
    weight: Tensor
    eps: float


@dataclass(frozen=True, eq=False)
class Linear:
    """outs[i] = x Wᵢᵀ + bᵢ (+ add, where there is one matrix). Matrices that read the same x stand together."""

    x: str
    outs: tuple[str, ...]
    weights: tuple[Weight, ...]
    biases: tuple[Tensor | None, ...]
    add: str | None = None


@dataclass(frozen=True, eq=False)
class SwiGLU:
    """out = silu(gate) · up"""

    gate: str
    up: str
    out: str


@dataclass(frozen=True, eq=False)
class Gate:
    """out = x · f(gate), f one of sigmoid and silu; a gate of width 1 serves the whole row."""

    x: str
    gate: str
    out: str
    by: Literal["sigmoid", "silu"]


@dataclass(frozen=True, eq=False)
class Concat:
    """out = [xs[0] | xs[1] | ...]"""

    xs: tuple[str, ...]
    out: str


@dataclass(frozen=True, eq=False)
class Rotate:
    """x, heads side by side, with the first ``rotary_dim`` dimensions of each rotated by the row's position.

    Pair i of a head is (i, i + rotary_dim / 2): (a, b) becomes (a cos - b sin, a sin + b cos).
    """

    x: str
    shape: HeadShape


@dataclass(frozen=True, eq=False)
class Store:
    """Rows of k and v become part of the cache, at the row's place of its sequence."""

    k: str
    v: str
    shape: HeadShape
    layer: int


@dataclass(frozen=True, eq=False)
class Attend:
    """out = softmax(q kᵀ · scale) v per head, over cached rows that the row may see: its own path up to itself.

    causal: False lets the rows that a sequence brings together see each other in both directions.
    """

    q: str
    out: str
    shape: HeadShape
    layer: int
    causal: bool = True


@dataclass(frozen=True, eq=False)
class Delta:
    """The gated delta rule behind a causal convolution (Yang et al., 2412.06464; as Qwen3-Next has it).

    q, k, v = silu(conv(qkv)) with q and k of unit length, q scaled by 1 / sqrt(Dk);
    g = rate · softplus(alpha + dt), b = sigmoid(beta);
    S = exp(g) S + k dᵀ with d = b (v - (exp(g) S)ᵀ k); out = Sᵀ q.

    conv: float32 [W, C], the current input's weight last    rate, dt: float32 [Hv]    eps: of the unit length
    layer: which layer of the pool of states is its own
    """

    qkv: str
    beta: str
    alpha: str
    out: str
    shape: DeltaShape
    conv: Tensor
    rate: Tensor
    dt: Tensor
    layer: int
    eps: float = 1e-6


@dataclass(frozen=True, eq=False)
class Mixture:
    """out = add + Σ weight_e · down_e(silu(gate_e x) · up_e x) over the experts that the router's scores choose.

    scores: the router's [R, E]    bias: float32 [E] that decides who is chosen, not how much, or None
    gate, up: [F, D] per expert    down: [D, F]
    """

    x: str
    scores: str
    out: str
    add: str
    experts: Experts
    bias: Tensor | None
    gate: Weight
    up: Weight
    down: Weight


@dataclass(frozen=True, eq=False)
class Pick:
    """out = the rows of x that the caller wants under this heading; from here on there are no others.

    ``final`` are rows whose state behind the last norm is wanted, ``logits`` those of them that get logits.
    """

    x: str
    out: str
    rows: Rows


@dataclass(frozen=True, eq=False)
class Tap:
    """x, if the caller asks for ``name``, as it is at this place."""

    x: str
    name: str


Op = Embed | Input | Norm | Linear | SwiGLU | Gate | Concat | Rotate | Store | Attend | Delta | Mixture | Pick | Tap


def weights_of(op: Op) -> tuple[Weight, ...]:
    """The stored matrices that an operation reads, in the order of reading."""
    match op:
        case Embed():
            return (op.table,)
        case Linear():
            return op.weights
        case Mixture():
            return op.gate, op.up, op.down
    return ()


def embedded(model: Model) -> int:
    """The width of embeddings that take the place of tokens; 0 where a model embeds nothing."""
    return next((op.table.k for op in model.ops if isinstance(op, Embed)), 0)


@dataclass(frozen=True, eq=False)
class Model:
    """The list, and the rotations that its heads turn by.

    frequencies: float32 [rotary_dim / 2], radians per position; None where nothing rotates. rope_scale: of cos and sin.
    Outputs are taps; that of the output matrix is called ``logits``.
    """

    ops: tuple[Op, ...]
    frequencies: Tensor | None = None
    rope_scale: float = 1.0

    @property
    def delta(self) -> DeltaShape | None:
        return next((op.shape for op in self.ops if isinstance(op, Delta)), None)

    @property
    def heads(self) -> HeadShape | None:
        """Of the cache that rows are stored in."""
        return next((op.shape for op in self.ops if isinstance(op, Store)), None)

    @property
    def attending(self) -> int:
        """Layers of the cache."""
        return sum(isinstance(op, Store) for op in self.ops)

    @property
    def recurring(self) -> int:
        """Layers of the pool of states."""
        return sum(isinstance(op, Delta) for op in self.ops)
