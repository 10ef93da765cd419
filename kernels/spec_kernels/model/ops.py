"""The operations of a model over named values: rows [R, width], a row for every token of a forward.

A model is a list of these, executed in order. Names of values may be written again. ``x``, if an
operation has it, is its input. The arithmetic is the formula in the docstring. An operation does not depend on the
number of rows or their sequences, except the ones that read other rows: ``Store``, ``Attend``, ``Delta``, ``Scan``,
``ShortConv``, ``BlockConv``, ``SparseIndex``.

Length: one list of all operations, which the page about architectures shows as one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from spec_kernels.model.rotary import RotaryTable
from spec_kernels.model.shapes import (
    ConvShape,
    DeltaShape,
    Experts,
    HeadShape,
    IndexShape,
    RecurrentShape,
    ScanShape,
    StreamShape,
)

Rows = Literal["logits", "final"]
Activation = Literal["silu", "gelu", "clamped", "relu"]
"""silu(g) · u, gelu(g) · u by the tanh formula, min(g, 7) · sigmoid(1.702 · min(g, 7)) · (clamp(u, -7, 7) + 1), or
max(g, 0) · u."""

Gating = Literal["sigmoid", "silu", "softplus", "identity"]
"""The function of a gate; softplus(g) = log(1 + e^g)."""


@dataclass(frozen=True, eq=False)
class Weight:
    """``count`` matrices [n, k] of a stored tensor, converted to floats or blocks when an executor reads it.

    rows: int64 [n], which rows of each stored matrix, in this order; None means all in stored order.
    wide: used in float32 even if the model runs in a narrower type.
    """

    name: str
    n: int
    k: int
    rows: Tensor | None = None
    count: int = 1
    wide: bool = False

    @cached_property
    def key(self) -> tuple[str, bytes | None]:
        """Key that is equal for weights with the same values."""
        return self.name, None if self.rows is None else self.rows.numpy().tobytes()


@dataclass(frozen=True, eq=False)
class Embed:
    """out = table[token] · scale, or the row given in place of the token, as it is.

    given: False: rows in place of tokens are of another embedding; theirs is that of token 0.
    """

    out: str
    table: Weight
    scale: float = 1.0
    given: bool = True


@dataclass(frozen=True, eq=False)
class Input:
    """out = rows that the caller passes by this name."""

    out: str
    width: int


@dataclass(frozen=True, eq=False)
class Norm:
    """out = x / sqrt(mean(x²) + eps) · weight, over pieces of the weight's width: a row, or each head of it.

    groups: equal parts of the weight; each has a mean of its own. centred: the mean of a piece is subtracted from it
    before (LayerNorm). bias: float32 of the weight's width, added to a centred row, or None.
    """

    x: str
    out: str
    weight: Tensor
    eps: float
    groups: int = 1
    centred: bool = False
    bias: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Linear:
    """outs[i] = x Wᵢᵀ + bᵢ (+ add, if there is one matrix). Matrices with the same input are grouped."""

    x: str
    outs: tuple[str, ...]
    weights: tuple[Weight, ...]
    biases: tuple[Tensor | None, ...]
    add: str | None = None


@dataclass(frozen=True, eq=False)
class HeadLinear:
    """out = [a | W_h b] of every head h of x, whose numbers are [a | b]: the first ``kept`` stay as they are.

    weight: a matrix [n, k] of each head. x: heads of ``kept`` + k numbers. out: heads of ``kept`` + n numbers.
    """

    x: str
    out: str
    weight: Weight
    kept: int = 0


@dataclass(frozen=True, eq=False)
class GLU:
    """out = act(gate) · up, see ``Activation``.

    limit: of silu: gate is at most this, and up between -limit and limit, before; 0: no limit.
    """

    gate: str
    up: str
    out: str
    act: Activation = "silu"
    limit: float = 0.0


@dataclass(frozen=True, eq=False)
class Gate:
    """out = x · f(gate). A gate of n columns, fewer than x has, applies each to one of n equal parts of the row."""

    x: str
    gate: str
    out: str
    by: Gating


@dataclass(frozen=True, eq=False)
class Add:
    """out = (x + y) · scale"""

    x: str
    y: str
    out: str
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class AddRelative:
    """x = x + sqrt(mean(x²)) · y, in place, for each row"""

    x: str
    y: str


@dataclass(frozen=True, eq=False)
class Scale:
    """x = x · by, in place."""

    x: str
    by: float


@dataclass(frozen=True, eq=False)
class SoftCap:
    """x = cap · tanh(x / cap), in place."""

    x: str
    cap: float


@dataclass(frozen=True, eq=False)
class Concat:
    """out = [xs[0] | xs[1] | ...]"""

    xs: tuple[str, ...]
    out: str


@dataclass(frozen=True, eq=False)
class Columns:
    """out = columns ``start`` to ``start + width - 1`` of x"""

    x: str
    out: str
    start: int
    width: int


@dataclass(frozen=True, eq=False)
class AddRows:
    """x[r] += the row ``index`` of ``ForwardBatch.added`` that is given for r, where there is one"""

    x: str
    index: int


@dataclass(frozen=True, eq=False)
class BlockConv:
    """out[r] = sum over t of x[r - t] · (base[t] + kernel[r, t, group of the channel]), t = 0 ... T - 1.

    A causal convolution over a sequence's rows in this batch, which are a chain; zero before the first. Channels of
    neighbouring groups of equal size share what ``kernel``, rows [R, T · groups], adds; None adds nothing.
    base: float32 [T, width]
    """

    x: str
    kernel: str | None
    out: str
    base: Tensor


@dataclass(frozen=True, eq=False)
class Rotate:
    """x, heads side by side, with the first ``rotary_dim`` dimensions of each rotated by the row's position.

    Pair i of a head is (i, i + rotary_dim / 2): (a, b) becomes (a cos - b sin, a sin + b cos).
    """

    x: str
    shape: HeadShape


@dataclass(frozen=True, eq=False)
class Store:
    """Rows of k and v are written to the cache, at the row's position of its sequence.

    v: None: values are the last numbers of the keys, see ``HeadShape.latent``.
    """

    k: str
    v: str | None
    shape: HeadShape
    layer: int


@dataclass(frozen=True, eq=False)
class Attend:
    """out = softmax(q kᵀ · scale) v per head, over the cached rows of the row's own path up to itself.

    causal: False lets the rows of one sequence in a batch attend to each other in both directions.
    sinks: float32 [H], a score of each head that takes part in its softmax and has no value, or None.
    anchored: windows end at the first row of a sequence in a batch, for all of its rows.
    pools: rows of ``SparseIndex`` with pools of ``pool`` positions: a row attends to the positions of its pools, and to
    those after its last whole pool; None: to all.
    """

    q: str
    out: str
    shape: HeadShape
    layer: int
    causal: bool = True
    sinks: Tensor | None = None
    anchored: bool = False
    pools: str | None = None
    pool: int = 0


@dataclass(frozen=True, eq=False)
class SparseIndex:
    """out = numbers of the ``used`` pools that score highest, ascending, then -1 (DeepSeek sparse attention, pooled).

    A pool is ``pool`` neighbouring positions of the row's own path. Only whole ones up to the row itself count; among
    equals the first counts. Rows of ``layer`` in the cache are [k | s], and in each number the key of a pool is
    Σ softmax(s + base) k over its positions. Its score is Σ weight_h · max(q_h · key, 0) over heads.

    q: heads side by side    weights: [R, heads]    base: float32 [pool, dim]    out: [R, used]
    """

    q: str
    weights: str
    out: str
    shape: IndexShape
    base: Tensor
    layer: int


@dataclass(frozen=True, eq=False)
class Delta:
    """The gated delta rule after a causal convolution (Yang et al., 2412.06464; as in Qwen3-Next).

    q, k, v = silu(conv(qkv)) with q and k of unit length, q scaled by 1 / sqrt(Dk);
    g = rate · softplus(alpha + dt), or floor · sigmoid(-rate · (alpha + dt)) where ``floor`` is below 0;
    b = strength · sigmoid(beta);
    S = exp(g) S + k dᵀ with d = b (v - (exp(g) S)ᵀ k); out = Sᵀ q.

    conv: float32 [W, C], the current input's weight last    eps: of the unit length
    rate, dt: float32 [Hv], or [Hv · Dk] as alpha is where every channel has a decay (KDA, 2510.26692)
    layer: its layer in the pool of states    strength: above 1 a step may turn a direction of the state round
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
    strength: float = 1.0
    floor: float = 0.0


@dataclass(frozen=True, eq=False)
class StreamWeights:
    """out = [pre | post | mix] of n streams, from x = [a | b | C] of n, n and n² numbers (mHC, 2512.24880).

    pre = sigmoid(scale₀ · a + base) + eps, post = 2 · sigmoid(scale₁ · b + base), mix = softmax of each row of
    scale₂ · C + base, + eps; then columns of mix, and ``rounds`` - 1 times its rows and its columns, are divided by
    their sums + eps (Sinkhorn), so that rows and columns add up to 1.

    base: float32 [2 n + n²]    scale: float32 [3]
    """

    x: str
    out: str
    shape: StreamShape
    base: Tensor
    scale: Tensor


@dataclass(frozen=True, eq=False)
class StreamSum:
    """out = Σ w_i · stream i of x, whose ``count`` streams lie side by side.

    weights: rows that begin with the weights of the streams; None: 1 / count of each.
    """

    x: str
    weights: str | None
    out: str
    count: int


@dataclass(frozen=True, eq=False)
class StreamMix:
    """stream i of x = post_i · y + Σ_j mix[j, i] · stream j of x, in place. weights: rows of ``StreamWeights``."""

    x: str
    y: str
    weights: str
    count: int


@dataclass(frozen=True, eq=False)
class Scan:
    """The state space recurrence of Mamba-2 after a causal convolution (Dao and Gu, 2405.21060).

    q, k, v = silu(conv(qkv) + bias), that is C, B and x; s = softplus(step + dt);
    S = exp(rate · s) S + k (s · v)ᵀ; out = Sᵀ q + skip · v.

    conv: float32 [W, C], the current input's weight last    bias: float32 [C]    rate, dt, skip: float32 [Hv]
    layer: its layer in the pool of states
    """

    qkv: str
    step: str
    out: str
    shape: ScanShape
    conv: Tensor
    bias: Tensor
    rate: Tensor
    dt: Tensor
    skip: Tensor
    layer: int


@dataclass(frozen=True, eq=False)
class ShortConv:
    """out = c · conv(b · x), a causal convolution of every channel (LFM2).

    conv: float32 [W, C], the current input's weight last    layer: its layer in the pool of states
    """

    b: str
    c: str
    x: str
    out: str
    shape: ConvShape
    conv: Tensor
    layer: int


@dataclass(frozen=True, eq=False)
class Mixture:
    """out = add + Σ weight_e · down_e(act(gate_e x) · up_e x) over the experts that the router's scores choose.

    add: None: nothing is added    scores: the router's [R, E]    gate: None: up takes its place
    bias: float32 [E] for the choice of experts only, not for their weights, or None
    factors: float32 [E] of the weights of experts, after they are normalised, or None
    gate, up: [F, D] per expert    down: [D, F]    biases: float32 [E, F], [E, F] and [E, D] of the three, or None
    limit: see ``GLU``
    """

    x: str
    scores: str
    out: str
    add: str | None
    experts: Experts
    bias: Tensor | None
    gate: Weight | None
    up: Weight
    down: Weight
    act: Activation = "silu"
    biases: tuple[Tensor, Tensor, Tensor] | None = None
    factors: Tensor | None = None
    limit: float = 0.0

    @property
    def inputs(self) -> tuple[Weight, ...]:
        """The matrices that read x."""
        return (self.up,) if self.gate is None else (self.gate, self.up)


@dataclass(frozen=True, eq=False)
class Clusters:
    """out = x Wᵀ in the columns of the ``used`` clusters that score highest in the row; -inf in all others.

    scores: [R, C]; cluster c has the columns c · n / C to (c + 1) · n / C - 1. Among equals the first cluster counts.
    """

    x: str
    scores: str
    out: str
    weight: Weight
    used: int


@dataclass(frozen=True, eq=False)
class Pick:
    """out = the rows of x that are requested for this heading; all others are dropped from here on.

    ``final`` rows: states after the last norm are requested; ``logits`` rows: the ones among them with logits.
    """

    x: str
    out: str
    rows: Rows


@dataclass(frozen=True, eq=False)
class Tap:
    """Outputs x at this point, if the caller requests ``name``."""

    x: str
    name: str


RecurrentOp = Delta | Scan | ShortConv
"""Operations that keep a state of each sequence."""
Op = (
    Embed | Input | Norm | Linear | HeadLinear | GLU | Gate | Add | AddRelative | Scale | SoftCap | Concat | Columns
    | AddRows | BlockConv | Rotate | Store | SparseIndex | Attend | RecurrentOp | StreamWeights | StreamSum | StreamMix
    | Mixture | Clusters | Pick | Tap
)  # fmt: skip


def weights_of(op: Op) -> tuple[Weight, ...]:
    """The stored matrices that an operation reads, in reading order."""
    match op:
        case Embed():
            return (op.table,)
        case Linear():
            return op.weights
        case Mixture():
            return *op.inputs, op.down
        case Clusters() | HeadLinear():
            return (op.weight,)
    return ()


def embedding_table(model: Model) -> Weight | None:
    """The first embedding; None if a model has none."""
    return next((op.table for op in model.ops if isinstance(op, Embed)), None)


def embedding_width(model: Model) -> int:
    """The width of embeddings given in place of tokens; 0 if a model has no embedding."""
    table = embedding_table(model)
    return 0 if table is None else table.k


@dataclass(frozen=True, eq=False)
class Model:
    """The list of operations, and the rotary frequencies of its heads.

    frequencies: float32 [rotary_dim / 2], radians per position; None without rotation. rope_scale: of cos and sin.
    local: the table of heads whose shape has ``table`` 1. Outputs are taps; that of the output matrix is named
    ``logits``.
    borrowed: shapes of all layers of another model's cache, in which this model reads and writes nothing.
    within: shapes of all layers of the cache in which this model, a part of another one, stores its own.
    """

    ops: tuple[Op, ...]
    frequencies: Tensor | None = None
    rope_scale: float = 1.0
    local: RotaryTable | None = None
    borrowed: tuple[HeadShape, ...] = ()
    within: tuple[HeadShape, ...] = ()

    @cached_property
    def tables(self) -> list[RotaryTable]:
        """Rotations by the number of their table."""
        first = [] if self.frequencies is None else [RotaryTable(self.frequencies, self.rope_scale)]
        return first + ([] if self.local is None else [self.local])

    @cached_property
    def recurrent(self) -> RecurrentShape | None:
        """Shape of the layers in the pool of states."""
        return next((op.shape for op in self.ops if isinstance(op, RecurrentOp)), None)

    @cached_property
    def cached(self) -> tuple[HeadShape, ...]:
        """Shapes of the heads in the cache, by layer. Raises ValueError for a layer that is missing or stored twice."""
        shapes = {op.layer: op.shape for op in self.ops if isinstance(op, Store)}
        stores = sum(isinstance(op, Store) for op in self.ops)
        if self.borrowed and stores:
            raise ValueError("a model that reads another model's cache stores keys and values")
        if self.within:
            return self.within
        if sorted(shapes) != list(range(stores)):
            raise ValueError(f"keys and values are stored in layers {sorted(shapes)}, 0 to {stores - 1} is needed")
        return self.borrowed or tuple(shapes[layer] for layer in range(stores))

    @property
    def row_numbers(self) -> int:
        """Numbers of one position in the cache."""
        return sum(shape.cached_numbers for shape in self.cached)

    @property
    def windowed_numbers(self) -> int:
        """Numbers of one position in the cache of layers with a window."""
        return sum(shape.cached_numbers for shape in self.cached if shape.window)

    @cached_property
    def recurring(self) -> int:
        """Number of layers in the pool of states."""
        return sum(isinstance(op, RecurrentOp) for op in self.ops)
