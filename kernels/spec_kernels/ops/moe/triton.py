"""Softmax routing, and gated experts whose weights are read once for all their rows.

Every pair of a row and one of its experts is a line of work. Lines are sorted by expert and cut into tiles of fixed
height, as in vLLM's fused experts; a line's result does not depend on the lines of its tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

HEIGHT = 16
"""Lines of one expert in one product."""
OUTPUTS = 64
"""Outputs of one program."""
INPUTS = 64
"""Inputs that are summed in one product."""
WIDE = 1024
"""Outputs of one program that only adds."""


def route(logits: Tensor, top: int, normalise: bool, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Experts of every row and their weights: softmax over all E in float32, then the ``top`` best.

    logits: [R, E]    normalise: whether the chosen weights are divided by their sum
    returns weights float32 [R, top] and experts int64 [R, top], best first
    """
    weights, chosen = _choices(len(logits), top, logits.device)
    route_into(weights, chosen, logits, normalise, scale)
    return weights, chosen


def route_into(weights: Tensor, chosen: Tensor, logits: Tensor, normalise: bool, scale: float) -> None:
    """``route`` into memory that exists."""
    (rows, count), top = logits.shape, chosen.shape[1]
    blocks = triton.next_power_of_2(count), triton.next_power_of_2(top)
    if rows:
        _route[(rows,)](logits, weights, chosen, *logits.stride(), scale, count, top, normalise, *blocks)


def _choices(rows: int, top: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Memory for weights and experts."""
    weights = torch.empty(rows, top, dtype=torch.float32, device=device)
    return weights, torch.empty(rows, top, dtype=torch.int64, device=device)


@triton.jit
def _route(
    logits, weights, chosen, row_stride, stride, scale,
    E: tl.constexpr, TOP: tl.constexpr, NORMALISE: tl.constexpr, BLOCK: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at, place = tl.arange(0, BLOCK), tl.arange(0, PLACES)
    scores = tl.load(logits + row * row_stride + at * stride, at < E, other=float("-inf")).to(tl.float32)
    rest = tl.exp(scores - tl.max(scores, 0))
    rest = rest / tl.sum(rest, 0)
    # Below every weight, even below 0.
    rest = tl.where(at < E, rest, -1.0)
    values, experts = tl.zeros([PLACES], tl.float32), tl.zeros([PLACES], tl.int32)
    for i in range(TOP):
        best = tl.argmax(rest, 0)
        values = tl.where(place == i, tl.max(rest, 0), values)
        experts = tl.where(place == i, best, experts)
        rest = tl.where(at == best, -2.0, rest)
    if NORMALISE:
        values = values / tl.sum(values, 0)
    tl.store(weights + row * TOP + place, values * scale, place < TOP)
    tl.store(chosen + row * TOP + place, experts.to(tl.int64), place < TOP)


def route_sigmoid(
    logits: Tensor, bias: Tensor, top: int, normalise: bool, scale: float = 1.0, groups: int = 1, groups_used: int = 1
) -> tuple[Tensor, Tensor]:
    """Experts by sigmoid scores, as DeepSeek-V3 and GLM-4.5 choose them: the bias decides who, not how much.

    logits: [R, E]    bias: [E]    scale: what the weights are multiplied by
    groups: E is divided into these; only the ``groups_used`` with the largest sum of their two best are chosen from
    returns weights float32 [R, top] and experts int64 [R, top]
    """
    weights, chosen = _choices(len(logits), top, logits.device)
    route_sigmoid_into(weights, chosen, logits, bias, normalise, scale, groups, groups_used)
    return weights, chosen


def route_sigmoid_into(
    weights: Tensor, chosen: Tensor, logits: Tensor, bias: Tensor, normalise: bool, scale: float, groups: int,
    groups_used: int,
) -> None:  # fmt: skip
    """``route_sigmoid`` into memory that exists."""
    (rows, count), top = logits.shape, chosen.shape[1]
    blocks = (triton.next_power_of_2(n) for n in (groups, count // groups, top))
    if rows:
        _route_sigmoid[(rows,)](
            logits, bias.contiguous(), weights, chosen, *logits.stride(), scale,
            count // groups, top, normalise, groups, groups_used, *blocks,
        )  # fmt: skip


@triton.jit
def _route_sigmoid(
    logits, bias, weights, chosen, row_stride, stride, scale,
    SIZE: tl.constexpr, TOP: tl.constexpr, NORMALISE: tl.constexpr, GROUPS: tl.constexpr, USED: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_E: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    group, member, place = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_E), tl.arange(0, PLACES)
    real = (group < GROUPS)[:, None] & (member < SIZE)[None, :]
    expert = group[:, None] * SIZE + member[None, :]
    scores = tl.load(logits + row * row_stride + expert * stride, real, other=0.0).to(tl.float32)
    scores = 1.0 / (1.0 + tl.exp(-scores))
    rest = tl.where(real, scores + tl.load(bias + expert, real, other=0.0).to(tl.float32), float("-inf"))
    if GROUPS > 1:
        first = tl.argmax(rest, 1)
        others = tl.where(member[None, :] == first[:, None], float("-inf"), rest)
        standing = tl.where(group < GROUPS, tl.max(rest, 1) + tl.max(others, 1), float("-inf"))
        closed = tl.full([BLOCK_G], 1, tl.int32)
        for _ in range(USED):
            winner = group == tl.argmax(standing, 0)
            closed = tl.where(winner, 0, closed)
            standing = tl.where(winner, float("-inf"), standing)
        rest = tl.where(closed[:, None] != 0, float("-inf"), rest)
    rest, scores = tl.reshape(rest, [BLOCK_G * BLOCK_E]), tl.reshape(scores, [BLOCK_G * BLOCK_E])
    at = tl.arange(0, BLOCK_G * BLOCK_E)
    values, experts = tl.zeros([PLACES], tl.float32), tl.zeros([PLACES], tl.int32)
    for i in range(TOP):
        best = tl.argmax(rest, 0)
        values = tl.where(place == i, tl.sum(tl.where(at == best, scores, 0.0), 0), values)
        experts = tl.where(place == i, best // BLOCK_E * SIZE + best % BLOCK_E, experts)
        rest = tl.where(at == best, float("-inf"), rest)
    if NORMALISE:
        values = values / (tl.sum(values, 0) + 1e-20)
    tl.store(weights + row * TOP + place, values * scale, place < TOP)
    tl.store(chosen + row * TOP + place, experts.to(tl.int64), place < TOP)


def experts(x: Tensor, weights: Tensor, chosen: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Sum of the chosen experts' answers: weight · down(silu(gate x) · up x).

    x: [R, D]    weights, chosen: [R, top]    gate, up: [E, F, D]    down: [E, D, F]
    returns [R, D]
    """
    (rows, width), (count, inner_width, _) = x.shape, gate.shape
    top = chosen.shape[1]
    out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    if not rows:
        return out
    order, owner, begin, end = _tiles(chosen, count)
    inner = torch.empty(rows * top, inner_width, dtype=x.dtype, device=x.device)
    answers = torch.empty(rows * top, width, dtype=torch.float32, device=x.device)
    tiles, x, chosen_weights = len(owner), x.contiguous(), weights.contiguous()
    _up[tiles, triton.cdiv(inner_width, OUTPUTS)](
        x, gate, up, inner, order, owner, begin, end, *gate.stride(), *up.stride(),
        top, width, inner_width, HEIGHT, OUTPUTS, INPUTS,
    )  # fmt: skip
    _down[tiles, triton.cdiv(width, OUTPUTS)](
        inner, down, chosen_weights, answers, order, owner, begin, end, *down.stride(),
        width, inner_width, HEIGHT, OUTPUTS, INPUTS,
    )  # fmt: skip
    _add[rows, triton.cdiv(width, WIDE)](answers, out, top, width, WIDE)
    return out


def _tiles(chosen: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lines sorted by expert, and for every tile its expert and the sorted lines it covers.

    returns order [R · top] and owner, begin, end [tiles]. Without a transfer to the host the number of tiles is not
    known, only its bound: surplus tiles cover no line.
    """
    lines = chosen.flatten()
    order = lines.argsort(stable=True)
    per_expert = torch.zeros(count, dtype=torch.int64, device=lines.device).index_add_(0, lines, torch.ones_like(lines))
    last_line, last_tile = per_expert.cumsum(0), ((per_expert + HEIGHT - 1) // HEIGHT).cumsum(0)
    tile = torch.arange(min(len(lines), count + len(lines) // HEIGHT), device=lines.device)
    owner = torch.searchsorted(last_tile, tile, right=True).clamp_(max=count - 1)
    first_tile = last_tile[owner] - (per_expert[owner] + HEIGHT - 1) // HEIGHT
    begin = last_line[owner] - per_expert[owner] + (tile - first_tile) * HEIGHT
    return order, owner, begin, torch.minimum(begin + HEIGHT, last_line[owner])


@triton.jit
def _up(
    x, gate, up, inner, order, owner, begin, end,
    gate_expert, gate_out, gate_in, up_expert, up_out, up_in,
    TOP: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
    HEIGHT: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """silu(gate x) · up x of one tile, OUTPUTS of them."""
    tile = tl.program_id(0)
    sorted_line = tl.load(begin + tile) + tl.arange(0, HEIGHT)
    stop = tl.load(end + tile)
    if tl.load(begin + tile) >= stop:
        return
    real = sorted_line < stop
    line = tl.load(order + sorted_line, real, other=0)
    gate += tl.load(owner + tile) * gate_expert
    up += tl.load(owner + tile) * up_expert
    at = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    gates, ups = tl.zeros([HEIGHT, OUTPUTS], tl.float32), tl.zeros([HEIGHT, OUTPUTS], tl.float32)
    for first in range(0, D, INPUTS):
        i = first + tl.arange(0, INPUTS)
        held = (i < D)[:, None] & (at < F)[None, :]
        rows = tl.load(x + (line // TOP * D)[:, None] + i[None, :], real[:, None] & (i < D)[None, :], other=0.0)
        for_gate = tl.load(gate + at[None, :] * gate_out + i[:, None] * gate_in, held, other=0.0)
        for_up = tl.load(up + at[None, :] * up_out + i[:, None] * up_in, held, other=0.0)
        gates = tl.dot(rows, for_gate, gates, input_precision="ieee")
        ups = tl.dot(rows, for_up, ups, input_precision="ieee")
    products = (gates / (1.0 + tl.exp(-gates)) * ups).to(inner.dtype.element_ty)
    tl.store(inner + line[:, None] * F + at[None, :], products, real[:, None] & (at < F)[None, :])


@triton.jit
def _down(
    inner, down, weights, answers, order, owner, begin, end,
    down_expert, down_out, down_in,
    D: tl.constexpr, F: tl.constexpr, HEIGHT: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """weight · down(inner) of one tile, OUTPUTS of them, to the lines' own places."""
    tile = tl.program_id(0)
    sorted_line = tl.load(begin + tile) + tl.arange(0, HEIGHT)
    stop = tl.load(end + tile)
    if tl.load(begin + tile) >= stop:
        return
    real = sorted_line < stop
    line = tl.load(order + sorted_line, real, other=0)
    down += tl.load(owner + tile) * down_expert
    at = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    total = tl.zeros([HEIGHT, OUTPUTS], tl.float32)
    for first in range(0, F, INPUTS):
        i = first + tl.arange(0, INPUTS)
        rows = tl.load(inner + line[:, None] * F + i[None, :], real[:, None] & (i < F)[None, :], other=0.0)
        held = (i < F)[:, None] & (at < D)[None, :]
        matrix = tl.load(down + at[None, :] * down_out + i[:, None] * down_in, held, other=0.0)
        total = tl.dot(rows, matrix, total, input_precision="ieee")
    total *= tl.load(weights + line, real, other=0.0).to(tl.float32)[:, None]
    tl.store(answers + line[:, None] * D + at[None, :], total, real[:, None] & (at < D)[None, :])


@triton.jit
def _add(answers, out, TOP: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """The answers of a row's experts, best first."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros([WIDE], tl.float32)
    for i in range(TOP):
        total += tl.load(answers + (row * TOP + i) * D + at, at < D, other=0.0)
    tl.store(out + row * D + at, total.to(out.dtype.element_ty), at < D)
