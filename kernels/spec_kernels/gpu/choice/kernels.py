"""Kernels that choose the token of every draw, in three launches.

A token's score is (logit - largest logit) / temperature + Gumbel noise, in float64; at temperature 0, and where the
largest logit is infinite, it is the logit. The best score wins, of equal ones the lowest id.
The first launch bounds the best score of every tile in float32. The second computes exact scores, but only of tiles
that can hold the best one. The third takes the best tile.
"""

from __future__ import annotations

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.choice.draws import COPY, COUNTER, FIELDS, ROW, SEED, TEMPERATURE
from spec_kernels.gpu.choice.noise import gumbel, philox
from spec_kernels.gpu.launch import launch_options, start_next, wait_for_previous
from spec_kernels.ops.device_function import device_function

COUNTERS = tl.constexpr(512)
"""Counters of noise in a tile; each gives words for four tokens."""
TILE = 4 * COUNTERS.value
"""Tokens of a program."""
ABSOLUTE = tl.constexpr(1e-3)
"""Absolute bound of the error of a float32 score."""
RELATIVE = tl.constexpr(2e-6)
"""Relative bound of the error of a float32 score, for large quotients."""
COLDEST = tl.constexpr(1e-30)
"""Scores at temperatures below this, 0 apart, have no bounds in float32."""
_FIELDS, _TEMPERATURE, _SEED, _COUNTER = map(tl.constexpr, (FIELDS, TEMPERATURE // 2, SEED, COUNTER))
_ROW, _COPY = tl.constexpr(ROW), tl.constexpr(COPY)


@attrs.frozen(eq=False)
class Tiles:
    """Results of the launches for every tile of B draws.

    largest: [B, T] float32, its largest logit, NaN if any is. lower, upper: [B, T] float32, bounds of its best score.
    scores: [B, T] float64, its best score, -inf if that cannot win. tokens: [B, T] int32, the token with that score.
    """

    largest: Tensor
    lower: Tensor
    upper: Tensor
    scores: Tensor
    tokens: Tensor

    @classmethod
    def empty(cls, draws: int, vocab: int, device: torch.device) -> Tiles:
        shape = draws, triton.cdiv(vocab, TILE)
        dtypes = torch.float32, torch.float32, torch.float32, torch.float64, torch.int32
        return cls(*(torch.empty(shape, dtype=dtype, device=device) for dtype in dtypes))


def choose_rows(logits: Tensor, copies: Tensor, draws: Tensor, tiles: Tiles, out: Tensor) -> None:
    """Choose the token of every draw; kernels on the current stream.

    logits: [R, V] float32, bfloat16 or float16    copies: [A, V] float32, adjusted rows
    draws: [B, FIELDS] int32    out: [2, B] int32, written: tokens, and the bits of the largest logits float32
    """
    (count, width), vocab = tiles.largest.shape, logits.shape[1]
    rows = logits, copies, draws, logits.stride(0), vocab, width
    block = triton.next_power_of_2(width)
    bounds, best = (tiles.largest, tiles.lower, tiles.upper), (tiles.scores, tiles.tokens)
    _bound_scores[(width, count)](*rows, *bounds, **launch_options(4))
    _find_best[(width, count)](*rows, *bounds, *best, block, **launch_options(4, fuse=False))
    _take_best[(count,)](draws, tiles.largest, *best, out, count, width, block, **launch_options(1))


@device_function
def counters(draw, tile):
    """The counters of a tile's noise: four words, a key of two, and the token of each counter's first word.

    Word w of a counter is that of the token 16 w later.
    """
    counter = tile * COUNTERS + tl.arange(0, COUNTERS)
    zero = (counter * 0).to(tl.uint32)
    t = zero + tl.load(draw + _COUNTER).to(tl.uint32)
    stream = zero + tl.load(draw + _COUNTER + 1).to(tl.uint32)
    domain = zero + tl.load(draw + _COUNTER + 2).to(tl.uint32)
    k0, k1 = tl.load(draw + _SEED).to(tl.uint32), tl.load(draw + _SEED + 1).to(tl.uint32)
    return counter.to(tl.uint32), t, stream, domain, k0, k1, (counter >> 4) * 64 + (counter & 15)


@device_function
def temperature_of(draw):
    """float64"""
    return tl.load(draw.to(tl.pointer_type(tl.float64)) + _TEMPERATURE)


@device_function
def _load_logits(logits, copies, draw, stride, token, V):
    """Logits of tokens as float32, -inf beyond the vocabulary; of a draw's adjusted copy, or else of
    its row.
    """
    row, copy = tl.load(draw + _ROW).to(tl.int64), tl.load(draw + _COPY).to(tl.int64)
    plain = tl.load(logits + row * stride + token, (token < V) & (copy < 0), other=float("-inf")).to(tl.float32)
    adjusted = tl.load(copies + copy * V + token, (token < V) & (copy >= 0), other=float("-inf"))
    return tl.where(copy < 0, plain, adjusted)


@device_function
def _max_or_nan(values):
    """The largest value; NaN if any is NaN."""
    is_nan = tl.max((values != values).to(tl.int32), 0) > 0
    return tl.where(is_nan, float("nan"), tl.max(values, 0))


@device_function
def bounds(value, temperature, high):
    """Lower and upper bounds of scores, logit / temperature + noise, from the upper halves of the uniforms.

    The noise is -log(e), e = -log(u). ``rest`` is 1 - u: where it is small, e is a series of it. There is no lower
    bound where the upper half of u is 0 or almost, or consists of ones.
    """
    rest = (high ^ 0xFFFFFFFF).to(tl.float32) * 2.3283064365386963e-10
    e = -tl.log(tl.maximum(1.0 - rest, 1e-37))
    e = tl.where(rest < 0.015625, rest + rest * rest * (0.5 + rest * 0.33333334), e)
    e = tl.where(rest > 0.5, -tl.log((high.to(tl.float32) + 1.0) * 2.3283064365386963e-10), e)
    upper = value / temperature - tl.log(e)
    return tl.where((rest > 0) & (rest < 0.9990234), upper - 2.4e-7 / e, float("-inf")), upper


@triton.jit
def _bound_scores(logits, copies, draws, stride, V, TILES, largest, lower, upper, DEPENDENT: tl.constexpr):
    """The largest logit of a tile, and bounds of its best score."""
    start_next(DEPENDENT)
    tile, draw = tl.program_id(0), draws + tl.program_id(1) * _FIELDS
    c0, c1, c2, c3, k0, k1, token = counters(draw, tile)
    high0, high1, high2, high3 = philox(c0, c1, c2, c3, k0, k1)
    temperature = temperature_of(draw)
    row = tl.load(draw + _ROW)
    wait_for_previous(DEPENDENT)
    if row < 0:
        return
    value0 = _load_logits(logits, copies, draw, stride, token, V)
    value1 = _load_logits(logits, copies, draw, stride, token + 16, V)
    value2 = _load_logits(logits, copies, draw, stride, token + 32, V)
    value3 = _load_logits(logits, copies, draw, stride, token + 48, V)
    divisor = tl.where(temperature < COLDEST, 1.0, temperature).to(tl.float32)
    lower0, upper0 = bounds(value0, divisor, high0)
    lower1, upper1 = bounds(value1, divisor, high1)
    lower2, upper2 = bounds(value2, divisor, high2)
    lower3, upper3 = bounds(value3, divisor, high3)
    low = tl.max(tl.maximum(tl.maximum(lower0, lower1), tl.maximum(lower2, lower3)), 0)
    high = tl.max(tl.maximum(tl.maximum(upper0, upper1), tl.maximum(upper2, upper3)), 0)
    top = tl.max(tl.maximum(tl.maximum(value0, value1), tl.maximum(value2, value3)), 0)
    cold = temperature < COLDEST
    place = tl.program_id(1) * TILES + tile
    nan = (value0 != value0) | (value1 != value1) | (value2 != value2) | (value3 != value3)
    tl.store(largest + place, tl.where(tl.max(nan.to(tl.int32), 0) > 0, float("nan"), top))
    tl.store(lower + place, tl.where(temperature == 0, top, tl.where(cold, float("-inf"), low)))
    tl.store(upper + place, tl.where(temperature == 0, top, tl.where(cold, float("inf"), high)))


@device_function
def _score(value, token, top, temperature, high, low, V):
    """Exact scores float64 of logits float32; -inf beyond the vocabulary."""
    value = value.to(tl.float64)
    greedy = (temperature == 0) | (top == float("inf"))
    z = (value - top) / tl.where(temperature == 0, 1.0, temperature)
    return tl.where(token < V, tl.where(greedy, value, z + gumbel(high, low)), float("-inf"))


@device_function
def _better(score, token, other_score, other_token):
    """The larger score and its token; of equal ones the lower token."""
    wins = (other_score > score) | ((other_score == score) & (other_token < token))
    return tl.where(wins, other_score, score), tl.where(wins, other_token, token)


@triton.jit
def _find_best(
    logits, copies, draws, stride, V, TILES, largest, lower, upper, scores, tokens, BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The best score of a tile and its token, unless the bounds of another tile exclude them."""
    start_next(DEPENDENT)
    tile, draw = tl.program_id(0), draws + tl.program_id(1) * _FIELDS
    first = tl.program_id(1) * TILES
    row = tl.load(draw + _ROW)
    wait_for_previous(DEPENDENT)
    if row < 0:
        return
    others = tl.arange(0, BLOCK)
    needed = tl.max(tl.load(lower + first + others, others < TILES, other=float("-inf")), 0)
    needed -= ABSOLUTE + RELATIVE * tl.abs(needed)
    if tl.load(upper + first + tile) < needed:
        tl.store(scores + first + tile, float("-inf"))
        tl.store(tokens + first + tile, V)
        return
    top = tl.max(tl.load(largest + first + others, others < TILES, other=float("-inf")), 0).to(tl.float64)
    temperature = temperature_of(draw)
    c0, c1, c2, c3, k0, k1, token = counters(draw, tile)
    high0, high1, high2, high3 = philox(c0, c1, c2, c3, k0, k1)
    low0, low1, low2, low3 = philox(c0 | 0x80000000, c1, c2, c3, k0, k1)
    value = _load_logits(logits, copies, draw, stride, token, V)
    score, best = _score(value, token, top, temperature, high0, low0, V), token
    value = _load_logits(logits, copies, draw, stride, token + 16, V)
    score, best = _better(score, best, _score(value, token + 16, top, temperature, high1, low1, V), token + 16)
    value = _load_logits(logits, copies, draw, stride, token + 32, V)
    score, best = _better(score, best, _score(value, token + 32, top, temperature, high2, low2, V), token + 32)
    value = _load_logits(logits, copies, draw, stride, token + 48, V)
    score, best = _better(score, best, _score(value, token + 48, top, temperature, high3, low3, V), token + 48)
    winner = tl.max(score, 0)
    tl.store(scores + first + tile, winner)
    tl.store(tokens + first + tile, tl.min(tl.where(score == winner, best, V), 0))


@triton.jit
def _take_best(draws, largest, scores, tokens, out, B, TILES, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    """The best token of all tiles, and the largest logit."""
    start_next(DEPENDENT)
    draw, tile = tl.program_id(0), tl.arange(0, BLOCK)
    wait_for_previous(DEPENDENT)
    place, exists = draw * TILES + tile, tile < TILES
    score = tl.load(scores + place, exists, other=float("-inf"))
    token = tl.load(tokens + place, exists, other=0x7FFFFFFF)
    top = _max_or_nan(tl.load(largest + place, exists, other=float("-inf")))
    tl.store(out + draw, tl.min(tl.where(score == tl.max(score, 0), token, 0x7FFFFFFF), 0))
    tl.store(out + B + draw, top.to(tl.int32, bitcast=True))
