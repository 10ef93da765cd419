"""Routing of a mixture: the experts of every row and their weights, see ``ops.moe.reference``."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


def route_into(
    weights: Tensor, chosen: Tensor, logits: Tensor, normalise: bool, scale: float, factors: Tensor | None = None
) -> None:
    """Softmax over all experts in float32, then the best ones.

    logits: [R, E]. weights: float32 [R, top]. chosen: int64 [R, top], best first. normalise: by the sum of the chosen.
    factors: float32 [E] of the weights after that, or None.
    """
    (rows, count), top = logits.shape, chosen.shape[1]
    blocks = triton.next_power_of_2(count), triton.next_power_of_2(top)
    if rows:
        _route[(rows,)](
            logits, logits if factors is None else factors, weights, chosen, *logits.stride(), scale, count, top,
            normalise, factors is not None, *blocks,
        )  # fmt: skip


@triton.jit
def _route(
    logits, factors, weights, chosen, row_stride, stride, scale,
    E: tl.constexpr, TOP: tl.constexpr, NORMALISE: tl.constexpr, FACTORS: tl.constexpr, BLOCK: tl.constexpr,
    PLACES: tl.constexpr,
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
    values *= scale
    if FACTORS:
        values *= tl.load(factors + experts, place < TOP, other=0.0)
    tl.store(weights + row * TOP + place, values, place < TOP)
    tl.store(chosen + row * TOP + place, experts.to(tl.int64), place < TOP)


def route_sigmoid_into(
    weights: Tensor, chosen: Tensor, logits: Tensor, bias: Tensor, normalise: bool, scale: float, groups: int,
    groups_used: int,
) -> None:  # fmt: skip
    """Experts by sigmoid scores: the bias decides who, not how much. See ``Experts`` for groups."""
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
