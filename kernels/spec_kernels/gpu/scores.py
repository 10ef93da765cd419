"""softmax(q kᵀ · scale) v over the cached rows of each row's path, for rows of several sequences at once.

Cached rows are cut into pieces that begin at fixed places (Flash-Decoding, Dao et al.), and a tile of queries has one
height: a row's bits depend neither on its neighbours nor on what follows it.

Where values are the last numbers of the keys (``HeadShape.latent``), they are read once: a key is then two tiles, its
first numbers and its value, and a program has some of the heads, since all of them read the same key.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import ROWS, exact_precision, launch_options, prefetch, start_next, wait_for_previous
from spec_kernels.gpu.layout import DEPTH, FIELDS
from spec_kernels.gpu.pool import Pool
from spec_kernels.gpu.rows import tanh
from spec_kernels.gpu.tiles import HEIGHT, PAGE, tile_of
from spec_kernels.model.shapes import HeadShape

COLUMNS = 64
"""Cached rows of one product; PAGE is a multiple of it. Fewer where heads are wide: see ``HEAD_BYTES``."""
PIECES = 8
"""Pieces that are summed together; the order of a sum depends on it."""
LOG2_E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True, eq=False)
class Attention:
    """Inputs and outputs of the two launches of a layer.

    layer: of the pool. causal: rows attend up to their own place, else to all rows of their sequence.
    sinks: float32 [H], see ``Attend``, or None. tree: some sequence has a tree. anchored: windows end at the first row
    of a sequence in the step.
    """

    shape: HeadShape
    pool: Pool
    layer: int
    causal: bool
    sinks: Tensor | None
    tree: bool
    anchored: bool = False


@dataclass(frozen=True, eq=False)
class Sums:
    """Results of pieces: float32 sums [N, P, H, V], largest scores and masses [N, P, H]; V: width of a value."""

    values: Tensor
    peaks: Tensor
    masses: Tensor


def attend(
    q: Tensor, rows: Tensor, tiles: Tensor, paths: Tensor, sums: Sums, attention: Attention, out: Tensor
) -> None:
    """Attention of all rows with a place.

    :param q: [P, H, D]. :param out: [P, H, V]. :param rows, tiles, paths: of ``layout``.
    """
    s, pool, pieces = attention.shape, attention.pool, len(sums.values)
    table = pool.table(attention.layer)
    lead = s.dim - s.latent if s.latent else 0
    block = max(16, triton.next_power_of_2(s.value_dim))
    height, group = tile_of(s, q.dtype)
    columns = max(16, min(COLUMNS, 16384 // (block * q.element_size())))
    _attend[pieces, triton.cdiv(s.heads, group), len(tiles)](
        q, pool.memory, table, rows, tiles, paths if attention.tree else rows, sums.values, sums.peaks,
        sums.masses, len(q), table.stride(0), pool.starts[attention.layer], s.scale, s.cap, FIELDS, DEPTH,
        s.heads, s.kv_heads, group, s.dim, lead, block, max(16, triton.next_power_of_2(lead)), height, columns, PAGE,
        attention.causal, s.window, s.lead, attention.anchored, s.cap > 0, attention.tree,
        exact_precision(q.dtype), **launch_options(4 if height == HEIGHT else 8, fuse=False),
    )  # fmt: skip
    _sum_pieces[triton.cdiv(len(rows), ROWS), s.heads](
        sums.values, sums.peaks, sums.masses, rows, rows if attention.sinks is None else attention.sinks, out,
        len(rows), len(q), FIELDS, s.heads, s.value_dim, block, PAGE, PIECES, attention.causal, s.window,
        s.lead, attention.anchored, attention.sinks is not None, ROWS, **launch_options(1),
    )  # fmt: skip


@triton.jit
def _attend(
    q, pages, tables, rows, tiles, paths, sums, peaks, masses, padded, table_stride, layer_at, scale, cap,
    FIELDS: tl.constexpr, DEPTH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    D: tl.constexpr, LEAD: tl.constexpr, BLOCK: tl.constexpr, LEAD_BLOCK: tl.constexpr, HEIGHT: tl.constexpr,
    COLUMNS: tl.constexpr, PAGE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BEFORE: tl.constexpr,
    ANCHORED: tl.constexpr, CAPPED: tl.constexpr, TREE: tl.constexpr, PRECISION: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One piece under the queries of a tile. LEAD: numbers of a key before its value, 0: values are apart.
    BEFORE: first places that are seen before the window.

    No kernel of a step writes what is read before the wait: the description, and cached rows of earlier steps.
    """
    piece, kv_head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start_next(DEPENDENT)
    fields = tiles + tile * FIELDS
    first, count, line, low = tl.load(fields), tl.load(fields + 1), tl.load(fields + 2), tl.load(fields + 3)
    if ANCHORED:
        low = tl.load(rows + first * FIELDS + 7)
    end = tl.load(fields + 4) if CAUSAL else tl.load(fields + 5)
    from_piece, to_piece = tl.load(fields + 6), tl.load(fields + 7)
    begin = piece * PAGE
    stop = tl.minimum(begin + PAGE, end)
    inside = (begin < end) & (piece >= from_piece) & (piece < to_piece)
    if WINDOW > 0:
        near = begin + PAGE > low - WINDOW + 1
        if BEFORE > 0:
            near = near | (begin < BEFORE)
        inside = inside & near
    if not inside:
        wait_for_previous(DEPENDENT)
    else:
        query, at, column = tl.arange(0, HEIGHT), LEAD + tl.arange(0, BLOCK), tl.arange(0, COLUMNS)
        lead = tl.arange(0, LEAD_BLOCK)
        page = tl.multiple_of(tl.load(tables + line.to(tl.int64) * table_stride + piece), 16)
        head_at = 0 if LEAD else kv_head.to(tl.int64) * PAGE * D
        keys = pages + page + layer_at + head_at
        values = keys + K * PAGE * D
        if D == BLOCK:
            lines = tl.arange(0, PAGE) * D
            prefetch(keys + lines, DEPENDENT)
            prefetch(values + lines, DEPENDENT)
        row, head = first + query // GROUP, kv_head * GROUP + query % GROUP
        real = (query // GROUP < count) & (head < H)
        seen = tl.load(rows + row * FIELDS + 4, real, other=-1)
        last = seen if CAUSAL else tl.load(rows + row * FIELDS + 5, real, other=-1)
        base = tl.load(rows + first * FIELDS + 6)
        wait_for_previous(DEPENDENT)
        q_at = q + (row.to(tl.int64) * H + head)[:, None] * D
        queries = tl.load(q_at + at[None, :], real[:, None] & (at < D)[None, :], other=0.0)
        if LEAD:
            leads = tl.load(q_at + lead[None, :], real[:, None] & (lead < LEAD)[None, :], other=0.0)
        peak = tl.full([HEIGHT], float("-inf"), tl.float32)
        mass = tl.zeros([HEIGHT], tl.float32)
        total = tl.zeros([HEIGHT, BLOCK], tl.float32)
        for begins in range(begin, stop, COLUMNS):
            place = begins + column
            source = place - begin
            if TREE and CAUSAL:
                # Places of a path, from the first draft on, are found through the row's own list.
                node = tl.load(paths + first * DEPTH + place - base, (place >= base) & (place < end), other=0)
                source = tl.where(place >= base, base + node - begin, source)
                far = tl.load(tables + line.to(tl.int64) * table_stride + (base + node) // PAGE, place >= base, other=0)
                away = tl.where(place >= base, far + (base + node) % PAGE * D, page + source * D)
                if D % 16 == 0:
                    away = tl.multiple_of(away, 16)  # rows are read 16 bytes at a time
                k_at = pages + layer_at + head_at + away[:, None]
            else:
                k_at = keys + source[:, None] * D
            there = (place < end)[:, None] & (at < D)[None, :]
            key = tl.load(k_at + at[None, :], there, other=0.0)
            scores = tl.dot(queries, tl.trans(key), input_precision=PRECISION)
            if LEAD:
                first_numbers = (place < end)[:, None] & (lead < LEAD)[None, :]
                key_lead = tl.load(k_at + lead[None, :], first_numbers, other=0.0)
                scores = tl.dot(leads, tl.trans(key_lead), scores, input_precision=PRECISION)
                value = key
            else:
                value = tl.load(k_at + K * PAGE * D + at[None, :], there, other=0.0)
            scores *= scale
            if CAPPED:
                scores = tanh(scores / cap) * cap
            visible = place[None, :] <= last[:, None]
            if WINDOW > 0:
                close = place[None, :] > (low if ANCHORED else seen[:, None]) - WINDOW
                if BEFORE > 0:
                    close = close | (place < BEFORE)[None, :]
                visible = visible & close
            scores = tl.where(visible, scores * LOG2_E, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, 1))
            level = tl.where(higher == float("-inf"), 0.0, higher)
            weight, kept = tl.exp2(scores - level[:, None]), tl.exp2(peak - level)
            total = tl.dot(weight.to(value.dtype), value, total * kept[:, None], input_precision=PRECISION)
            mass = mass * kept + tl.sum(weight, 1)
            peak = higher
        to = (piece * padded + row).to(tl.int64) * H + head
        tl.store(peaks + to, peak, real)
        tl.store(masses + to, mass, real)
        values_at = sums + to[:, None] * (D - LEAD) + (at - LEAD)[None, :]
        tl.store(values_at, total, real[:, None] & (at < D)[None, :])


@triton.jit
def _sum_pieces(
    sums, peaks, masses, rows, sinks, out, count, padded, FIELDS: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr, PAGE: tl.constexpr, PIECES: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    BEFORE: tl.constexpr, ANCHORED: tl.constexpr, SINKS: tl.constexpr, ROWS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The pieces of one head of ROWS rows, from the first that its window reaches to that of its last place."""
    row, head, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1), tl.arange(0, BLOCK)
    start_next(DEPENDENT)
    exists = row < count
    place = tl.load(rows + row * FIELDS + 3, exists, other=-1)
    seen = tl.load(rows + row * FIELDS + 4, exists, other=0)
    last = seen if CAUSAL else tl.load(rows + row * FIELDS + 5, exists, other=0)
    edge = tl.load(rows + row * FIELDS + 7, exists, other=0) if ANCHORED else seen
    first = tl.maximum(edge - WINDOW + 1, 0) // PAGE if WINDOW > 0 else seen * 0
    end = tl.where(place < 0, first, last // PAGE + 1)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    if SINKS:
        peak = tl.zeros([ROWS], tl.float32) + tl.load(sinks + head) * LOG2_E
        mass += 1.0
    wait_for_previous(DEPENDENT)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    row = row.to(tl.int64)
    for begin in range(0 if BEFORE > 0 else tl.min(first, 0) // PIECES * PIECES, tl.max(end, 0), PIECES):
        piece = (begin + tl.arange(0, PIECES))[None, :]
        near = piece >= first[:, None]
        if BEFORE > 0:
            near = near | (piece * PAGE < BEFORE)
        source, real = (piece * padded + row[:, None]) * H + head, near & (piece < end[:, None])
        level = tl.load(peaks + source, real, other=float("-inf"))
        higher = tl.maximum(peak, tl.max(level, 1))
        # Of several rows some have no piece here: nothing is subtracted from -inf.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight, kept = tl.exp2(level - base[:, None]), tl.exp2(peak - base)
        there = real[:, :, None] & (at < D)[None, None, :]
        values = tl.load(sums + source[:, :, None] * D + at[None, None, :], there, other=0.0)
        total = total * kept[:, None] + tl.sum(values * weight[:, :, None], 1)
        mass = mass * kept + tl.sum(tl.load(masses + source, real, other=0.0) * weight, 1)
        peak = higher
    there, mass = (place >= 0)[:, None] & (at < D)[None, :], tl.where(place < 0, 1.0, mass)
    tl.store(out + (row * H + head)[:, None] * D + at[None, :], (total / mass[:, None]).to(out.dtype.element_ty), there)
