"""The gated delta rule, and Mamba-2's, with the state in registers: a program carries some columns of one head through
all its rows.

The columns of a state do not depend on each other, so programs never wait for one another. Rows alone are one launch:
a row continues the state in registers, or, in a tree, fetches the one that its parent left. Runs of rows are two: the
triangular systems of all pieces side by side, then the state from piece to piece (2412.06464, section 3.3).
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.ops.device_function import device_function
from spec_kernels.ops.gated_delta.plan import PIECE

COLUMNS = 8
"""Columns of a state in one warp: 32 bytes of a row, the least that memory delivers."""
WIDE = 32
"""Columns of a state in one program where pieces of rows are products."""


class Rows(NamedTuple):
    """Inputs and outputs of all launches; rows may lie apart. g: [R, Hv, Dk], of any strides

    states: [*, Hv, Dk, Dv], from place 0 on. place_size: numbers from one place to the next.
    aside: [n, Hv, Dk, Dv], for states that are laid aside. o: [R, Hv, Dv], d: the same, rows may lie apart.
    skip: float32 [Hv] of Mamba-2, whose values are written as they are, without what a state recalls of their keys.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    g: Tensor
    states: Tensor
    place_size: int
    key_of: Tensor
    aside: Tensor
    o: Tensor
    d: Tensor
    skip: Tensor | None = None


class Pieces(NamedTuple):
    """Pieces of a stage, see ``plan``. table: int64 [n, 6]. spans: int64 [sequences, 2]"""

    table: Tensor
    spans: Tensor


class Solved(NamedTuple):
    """Memory of ``compute_runs``. w: [pieces, Hv, PIECE, Dk], u: the same with Dv, looks: with PIECE"""

    w: Tensor
    u: Tensor
    looks: Tensor


def by_channel(g: Tensor, k: Tensor) -> Tensor:
    """[R, Hv, Dk]; a decay per head is that of all its channels."""
    return g if g.dim() == 3 else g[..., None].expand(*g.shape, k.shape[-1])


@device_function
def _fetch(state, entry, states, aside, PLACE: tl.constexpr, SIZE: tl.constexpr, place, held):
    """The state before a piece: in hand, stored, or laid aside."""
    before, beside = tl.load(entry + 2), tl.load(entry + 4)
    if (before != -1) | (beside != -1):
        # Another thread of this program may have written it.
        tl.debug_barrier()
        stored = tl.load(states + before * PLACE + place, held & (before != -1), other=0.0)
        state = stored + tl.load(aside + beside * SIZE + place, held & (beside != -1), other=0.0)
    return state


@device_function
def _leave(state, entry, states, aside, PLACE: tl.constexpr, SIZE: tl.constexpr, place, held):
    """Keep the state after a piece, and lay it aside, where anyone will look at it."""
    keep, beside = tl.load(entry + 3), tl.load(entry + 5)
    if keep != -1:
        tl.store(states + keep * PLACE + place, state, held)
    if beside != -1:
        tl.store(aside + beside * SIZE + place, state, held)


@device_function
def _advance(state, k, d, decay):
    """Next state, with the same rounding wherever it is inlined: one product, then one fused product and sum."""
    return tl.fma(k[:, None], d[None, :], state * decay[:, None])


def compute_rows(rows: Rows, pieces: Pieces, columns: int = COLUMNS) -> None:
    """Rows one after the other. columns: of a program."""
    heads, key_dim, value_dim = rows.states.shape[1:]
    _rows[len(pieces.spans), heads, triton.cdiv(value_dim, columns)](
        rows.q, rows.k, rows.v, rows.beta, rows.g, rows.states, rows.aside, rows.o, rows.d, rows.skip, *pieces,
        rows.key_of, *(m.stride(0) for m in (rows.q, rows.k, rows.v, rows.beta, rows.d)), *rows.g.stride(),
        key_dim, heads, value_dim, rows.skip is None, triton.next_power_of_2(key_dim), columns, rows.place_size,
        num_warps=1,
    )  # fmt: skip


@triton.jit
def _rows(
    q, k, v, beta, g, states, aside, o, d, skip, table, spans, key_of,
    q_row, k_row, v_row, beta_row, d_row, g_row, g_head, g_channel,
    DK: tl.constexpr, HV: tl.constexpr, DV: tl.constexpr, RECALLS: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, PLACE: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    key_head = tl.load(key_of + head)
    i, j = tl.arange(0, BLOCK_K), tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    held = (i < DK)[:, None] & (j < DV)[None, :]
    place = head * DK * DV + i[:, None] * DV + j[None, :]
    state = tl.zeros([BLOCK_K, BLOCK_V], tl.float32)
    for piece in range(tl.load(spans + sequence * 2), tl.load(spans + sequence * 2 + 1)):
        entry = table + piece * 6
        row = tl.load(entry)
        state = _fetch(state, entry, states, aside, PLACE, HV * DK * DV, place, held)
        key = tl.load(k + row * k_row + key_head * DK + i, i < DK, other=0.0)
        query = tl.load(q + row * q_row + key_head * DK + i, i < DK, other=0.0)
        decay = tl.exp(tl.load(g + row * g_row + head * g_head + i * g_channel, i < DK, other=0.0))
        value = tl.load(v + row * v_row + head * DV + j, j < DV, other=0.0)
        answer = tl.sum(state * (query * decay)[:, None], 0)
        if RECALLS:
            written = tl.load(beta + row * beta_row + head) * (value - tl.sum(state * (key * decay)[:, None], 0))
        else:
            written = tl.load(beta + row * beta_row + head) * value
            answer += tl.load(skip + head) * value
        tl.store(d + row * d_row + head * DV + j, written, j < DV)
        tl.store(o + (row * HV + head) * DV + j, answer + tl.sum(query * key, 0) * written, j < DV)
        state = _advance(state, key, written, decay)
        _leave(state, entry, states, aside, PLACE, HV * DK * DV, place, held)


@device_function
def replay_columns(
    before, after, k, d, g, key_of, path, k_row, d_row, g_row, g_head, g_channel, rows,
    DK: tl.constexpr, DV: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Some columns of one head's state along recorded rows. before, after: where the state is read and written."""
    head = tl.program_id(0).to(tl.int64)
    key_head = tl.load(key_of + head)
    i, j = tl.arange(0, BLOCK_K), tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    held = (i < DK)[:, None] & (j < DV)[None, :]
    place = head * DK * DV + i[:, None] * DV + j[None, :]
    state = tl.load(before + place, held, other=0.0)
    for n in range(rows):
        row = tl.load(path + n)
        key = tl.load(k + row * k_row + key_head * DK + i, i < DK, other=0.0)
        written = tl.load(d + row * d_row + head * DV + j, j < DV, other=0.0)
        decay = tl.exp(tl.load(g + row * g_row + head * g_head + i * g_channel, i < DK, other=0.0))
        state = _advance(state, key, written, decay)
    tl.store(after + place, state, held)


def compute_runs(rows: Rows, pieces: Pieces, solved: Solved) -> None:
    """Pieces of runs. With W and U the solutions of (I + A) [W U] = beta [exp(G) k, v], a piece's d is U - W S; that of
    Mamba-2 is beta v.

    solved: memory of the first pieces, which are the computed ones.
    """
    heads, key_dim, value_dim = rows.states.shape[1:]
    q, k, v, beta, g = rows.q, rows.k, rows.v, rows.beta, rows.g
    block = max(16, triton.next_power_of_2(key_dim))
    _solve[len(solved.w), heads](
        q, k, v, beta, g, *solved, pieces.table, rows.key_of, *(m.stride(0) for m in (q, k, v, beta)), *g.stride(),
        key_dim, heads, value_dim, rows.skip is None, block, triton.next_power_of_2(value_dim), PIECE,
    )  # fmt: skip
    _carry[len(pieces.spans), heads, triton.cdiv(value_dim, WIDE)](
        q, k, v, g, *solved, rows.states, rows.aside, rows.o, rows.d, rows.skip, *pieces, rows.key_of,
        q.stride(0), k.stride(0), v.stride(0), rows.d.stride(0), *g.stride(), key_dim, heads, value_dim,
        rows.skip is None, block, WIDE, PIECE, rows.place_size, num_warps=8,
    )  # fmt: skip


@triton.jit
def _solve(
    q, k, v, beta, g, w, u, looks, table, key_of,
    q_row, k_row, v_row, beta_row, g_row, g_head, g_channel,
    DK: tl.constexpr, HV: tl.constexpr, DV: tl.constexpr, RECALLS: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Forward substitution in a piece, column by column, and ``looks``: (q_i · k_j) with the decay from j to i.

    Exponents are differences of running sums, at most 0: they cannot overflow.
    """
    piece, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key_head = tl.load(key_of + head)
    first, count = tl.load(table + piece * 6), tl.load(table + piece * 6 + 1)
    n, c, j = tl.arange(0, PIECE), tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    row, real = first + n, n < count
    in_key, in_value = real[:, None] & (c < DK)[None, :], real[:, None] & (j < DV)[None, :]
    keys = tl.load(k + (row * k_row + key_head * DK)[:, None] + c[None, :], in_key, other=0.0)
    queries = tl.load(q + (row * q_row + key_head * DK)[:, None] + c[None, :], in_key, other=0.0)
    rates = tl.load(beta + row * beta_row + head, real, other=0.0)
    log_decays = tl.load(g + (row * g_row + head * g_head)[:, None] + c[None, :] * g_channel, in_key, other=0.0)
    total = tl.cumsum(log_decays, 0)
    for_u = tl.load(v + (row * v_row + head * DV)[:, None] + j[None, :], in_value, other=0.0) * rates[:, None]
    for_w = keys * tl.exp(total) * rates[:, None]
    base = (piece * HV + head) * PIECE
    for m in range(PIECE):
        is_m = (n == m)[:, None]
        key = tl.sum(tl.where(is_m, keys, 0.0), 0)
        gap = total - tl.sum(tl.where(is_m, total, 0.0), 0)[None, :]
        decayed = tl.exp(tl.where((n >= m)[:, None], gap, float("-inf"))) * key[None, :]
        tl.store(looks + (base + n) * PIECE + m, tl.sum(queries * decayed, 1))
        if RECALLS:
            below = tl.where(n > m, tl.sum(keys * decayed, 1) * rates, 0.0)[:, None]
            for_u -= below * tl.sum(tl.where(is_m, for_u, 0.0), 0)[None, :]
            for_w -= below * tl.sum(tl.where(is_m, for_w, 0.0), 0)[None, :]
    tl.store(u + (base + n)[:, None] * DV + j[None, :], for_u, (j < DV)[None, :])
    if RECALLS:
        tl.store(w + (base + n)[:, None] * DK + c[None, :], for_w, (c < DK)[None, :])


@triton.jit
def _carry(
    q, k, v, g, w, u, looks, states, aside, o, d, skip, table, spans, key_of,
    q_row, k_row, v_row, d_row, g_row, g_head, g_channel,
    DK: tl.constexpr, HV: tl.constexpr, DV: tl.constexpr, RECALLS: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, PIECE: tl.constexpr, PLACE: tl.constexpr,
):  # fmt: skip
    """D = U - W S, O = exp(G) Q S + looks D, S' = exp(G_last) S + Σ_i exp(G_last - G_i) k_i d_iᵀ, piece by piece."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    key_head = tl.load(key_of + head)
    n, c, j = tl.arange(0, PIECE), tl.arange(0, BLOCK_K), tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    held = (c < DK)[:, None] & (j < DV)[None, :]
    place = head * DK * DV + c[:, None] * DV + j[None, :]
    state = tl.zeros([BLOCK_K, BLOCK_V], tl.float32)
    for piece in range(tl.load(spans + sequence * 2), tl.load(spans + sequence * 2 + 1)):
        entry = table + piece * 6
        row, real = tl.load(entry) + n, n < tl.load(entry + 1)
        state = _fetch(state, entry, states, aside, PLACE, HV * DK * DV, place, held)
        in_key = real[:, None] & (c < DK)[None, :]
        in_value = real[:, None] & (j < DV)[None, :]
        keys = tl.load(k + (row * k_row + key_head * DK)[:, None] + c[None, :], in_key, other=0.0)
        queries = tl.load(q + (row * q_row + key_head * DK)[:, None] + c[None, :], in_key, other=0.0)
        log_decays = tl.load(g + (row * g_row + head * g_head)[:, None] + c[None, :] * g_channel, in_key, other=0.0)
        total, last = tl.cumsum(log_decays, 0), tl.sum(log_decays, 0)
        base = (piece * HV + head) * PIECE + n
        written = tl.load(u + base[:, None] * DV + j[None, :], in_value, other=0.0)
        look = tl.load(looks + base[:, None] * PIECE + n[None, :])
        out = tl.dot(queries * tl.exp(total), state, input_precision="ieee")
        if RECALLS:
            solved = tl.load(w + base[:, None] * DK + c[None, :], in_key, other=0.0)
            written -= tl.dot(solved, state, input_precision="ieee")
        else:
            value = tl.load(v + (row * v_row + head * DV)[:, None] + j[None, :], in_value, other=0.0)
            out += tl.load(skip + head) * value
        out = tl.dot(look, written, out, input_precision="ieee")
        tl.store(d + (row * d_row + head * DV)[:, None] + j[None, :], written, in_value)
        tl.store(o + (row * HV + head)[:, None] * DV + j[None, :], out, in_value)
        late = tl.trans(keys * tl.exp(last[None, :] - total))
        state = tl.dot(late, written, state * tl.exp(last)[:, None], input_precision="ieee")
        _leave(state, entry, states, aside, PLACE, HV * DK * DV, place, held)
