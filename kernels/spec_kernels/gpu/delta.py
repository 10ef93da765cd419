"""Gated delta nets and Mamba-2: what comes before their rule, in one launch, and the replay of recorded rows, in one.

Recorded rows are float32 [L, n, x | k | d | g]: inputs of the convolution, keys, written values, logarithms of decays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.delta_rule import COLUMNS, replay_columns
from spec_kernels.gpu.device import device_lock, upload_numbers
from spec_kernels.gpu.launch import ROWS, launch_options, on_device, start_next, wait_for_previous
from spec_kernels.gpu.rows import sigmoid
from spec_kernels.gpu.states import StateChunks
from spec_kernels.gpu.windows import Links, advance_window, convolve, replay_windows
from spec_kernels.model.shapes import ConvShape, DeltaShape
from spec_kernels.ops.device_function import INTERPRETED, device_function

CHANNELS = 256
"""Channels of a window that one program replays."""


@dataclass(frozen=True, eq=False)
class DeltaInputs:
    """Inputs that one layer computes from its rows.

    conv: float32 [W, C]. rate, dt: float32 [Hv], or [Hv · Dk] where every channel has a decay. layer: of the pool.
    bias: float32 [C] of Mamba-2's convolution; None: of a gated delta net. strength: of its rates.
    q: float32 [P, Hk, Dk]. v: float32 [P, Hv, Dv]. rates: float32 [P, Hv], how much of a value is written. record:
    float32 [P, *], see above. recorded: whether inputs are written there; keys and decays always are.
    """

    conv: Tensor
    rate: Tensor
    dt: Tensor
    eps: float
    pool: StateChunks
    layer: int
    q: Tensor
    v: Tensor
    rates: Tensor
    record: Tensor
    recorded: bool
    bias: Tensor | None = None
    strength: float = 1.0


def columns_of(shape: DeltaShape) -> int:
    """Columns of a state in one program; the interpreter runs few large programs faster."""
    return triton.next_power_of_2(shape.value_dim) if INTERPRETED else COLUMNS


def split_record(record: Tensor, shape: DeltaShape) -> tuple[Tensor, ...]:
    """x [..., C], k [..., Hk, Dk], d [..., Hv, Dv] and g [..., Hv] or [..., Hv, Dk] of recorded rows, as views."""
    s = shape
    x, k, d, g = record.split([s.channels, s.key_width, s.value_width, s.decays], -1)
    g = g.unflatten(-1, (s.value_heads, -1)) if s.by_channel else g
    return x, k.unflatten(-1, (s.key_heads, -1)), d.unflatten(-1, (s.value_heads, -1)), g


def prepare_rows(x: Tensor, beta: Tensor, alpha: Tensor, links: Links, inputs: DeltaInputs) -> None:
    """q, k, v = silu(conv(x)), q and k of unit length; rates = strength · sigmoid(beta) and
    g = rate · softplus(alpha + dt).

    Of Mamba-2, q, k, v = silu(conv(x) + bias), and rates = softplus(alpha + dt).

    :param x: [P, C]. :param beta: [P, Hv]. :param alpha: [P, decays]. Rows may be strided. :param links: of R rows.
    """
    s, count, (_, windows) = inputs.pool.shape, len(links.parents), inputs.pool.of_layer(inputs.layer)
    assert isinstance(s, DeltaShape)
    _prepare_rows[triton.cdiv(count, ROWS), 2 * s.key_heads + s.value_heads](
        x, beta, alpha, inputs.conv, inputs.bias, inputs.rate, inputs.dt, windows, links.parents, links.source,
        inputs.q, inputs.v, inputs.rates, inputs.record, count,
        x.stride(0), beta.stride(0), alpha.stride(0), inputs.record.stride(0), inputs.eps,
        s.key_dim**-0.5 if inputs.bias is None else 1.0, inputs.strength,
        s.key_heads, s.key_dim, s.value_heads, s.value_dim, s.by_channel, s.kernel, inputs.recorded,
        inputs.bias is not None,
        triton.next_power_of_2(max(s.key_dim, s.value_dim)), ROWS, **launch_options(1),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class RecordedRows:
    """Inputs of some rows of all layers. memory: float32 [L, n, *]"""

    memory: Tensor

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def replay(self, chunks: StateChunks, place: int, path: Sequence[int]) -> None:
        """Advance the state in ``place`` along these rows, in order."""
        with device_lock(chunks.device), on_device(chunks.device):
            replay_rows(self.memory, chunks, place, upload_numbers(np.array(path, np.int64), chunks.device))


def replay_rows(record: Tensor, chunks: StateChunks, place: int, path: Tensor) -> None:
    """Advance the state in a place along recorded rows.

    :param record: float32 [L, n, *]. :param path: int64 [m].
    """
    s, at, (matrices, windows) = chunks.shape, int(chunks.offsets[place]), chunks.of_layer(0)
    if isinstance(s, ConvShape):
        replay_windows(record, windows, at, chunks.layer_size, path)
        return
    x, k, d, g = split_record(record, s)
    columns = columns_of(s)
    blocks = triton.cdiv(s.value_dim, columns)
    pieces = triton.cdiv(triton.cdiv(s.channels, CHANNELS), s.value_heads)
    _replay_rows[s.value_heads, blocks + pieces, chunks.layers](
        matrices, windows, x, k, d, g, chunks.key_of, path, at, len(path),
        chunks.layer_size, record.stride(0), record.stride(1),
        s.key_dim, s.value_heads, s.value_dim, s.channels, s.kernel, s.decays // s.value_heads, blocks,
        triton.next_power_of_2(s.key_dim), columns, CHANNELS, num_warps=1,
    )  # fmt: skip


@device_function
def _softplus(alpha, step, there):
    """softplus of numbers in memory plus a step."""
    number = tl.load(alpha, there, other=0.0).to(tl.float32) + step
    return tl.maximum(number, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(number)))


@triton.jit
def _prepare_rows(
    x, beta, alpha, conv, bias, rate, dt, windows, parents, source, q, v, rates, record, count,
    x_stride, beta_stride, alpha_stride, record_stride, eps, scale, strength,
    HK: tl.constexpr, DK: tl.constexpr, HV: tl.constexpr, DV: tl.constexpr, BY_CHANNEL: tl.constexpr,
    W: tl.constexpr, RECORDED: tl.constexpr, SCAN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One head of q, k or v of ROWS rows: values are [ROWS, BLOCK]."""
    start_next(DEPENDENT)
    row, head = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.program_id(1)
    column, exists, KEYS = tl.arange(0, BLOCK), row < count, HK * DK
    is_key = head < 2 * HK
    at = column + tl.where(is_key, head * DK, 2 * KEYS + (head - 2 * HK) * DV)
    real = column < tl.where(is_key, DK, DV)
    there = exists[:, None] & real[None, :]
    wait_for_previous(DEPENDENT)
    C: tl.constexpr = 2 * HK * DK + HV * DV
    value = convolve(x, conv, windows, parents, source, row, exists, at, real, x_stride, C, W, BLOCK, ROWS, 1)
    if SCAN:
        value += tl.load(bias + at, real, other=0.0)[None, :]
    value = value * sigmoid(value)
    here, at = record + row * record_stride, at[None, :]
    if RECORDED:
        inputs = tl.load(x + (row * x_stride)[:, None] + at, there, other=0.0)
        tl.store(here[:, None] + at, inputs, there)
    if is_key:
        if not SCAN:
            value = value / tl.sqrt(tl.sum(value * value, 1) + eps)[:, None]
        if head < HK:
            tl.store(q + (row * KEYS)[:, None] + at, value * scale, there)
        else:
            tl.store(here[:, None] + C - KEYS + at, value, there)
    else:
        tl.store(v + (row * HV * DV)[:, None] - 2 * KEYS + at, value, there)
        value_head, to = head - 2 * HK, here + C + KEYS + HV * DV
        if BY_CHANNEL:
            channel, decays = value_head * DK + column[None, :], exists[:, None] & (column < DK)[None, :]
            in_head = (column < DK)[None, :]
            step, factor = tl.load(dt + channel, in_head, other=0.0), tl.load(rate + channel, in_head, other=0.0)
            stepped = _softplus(alpha + (row * alpha_stride)[:, None] + channel, step, decays)
            tl.store(to[:, None] + channel, factor * stepped, decays)
        else:
            stepped = _softplus(alpha + row * alpha_stride + value_head, tl.load(dt + value_head), exists)
            tl.store(to + value_head, tl.load(rate + value_head) * stepped, exists)
        if SCAN:
            rated = stepped
        else:
            rated = strength * sigmoid(tl.load(beta + row * beta_stride + value_head, exists, other=0.0).to(tl.float32))
        tl.store(rates + row * HV + value_head, rated, exists)


@triton.jit
def _replay_rows(
    matrices, windows, x, k, d, g, key_of, path, offset, count, layer_size, record_layer, record_row,
    DK: tl.constexpr, HV: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, W: tl.constexpr, DECAYS: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Programs of one layer: columns of the matrix of a head, and channels of the window. DECAYS: of a head."""
    layer = tl.program_id(2).to(tl.int64)
    at, of_layer = tl.cast(offset, tl.int64) + layer * layer_size, layer * record_layer
    if tl.program_id(1) < BLOCKS:
        state = matrices + at
        replay_columns(
            state, state, k + of_layer, d + of_layer, g + of_layer, key_of, path,
            record_row, record_row, record_row, DECAYS, DECAYS // DK, count, DK, DV, BLOCK_K, BLOCK_V,
        )  # fmt: skip
    else:
        piece = (tl.program_id(1) - BLOCKS) * HV + tl.program_id(0)
        channel = piece * BLOCK + tl.arange(0, BLOCK)
        advance_window(windows + at + channel, x + of_layer + channel, path, count, record_row, channel < C, C, W)
