"""Chains of drafts on the device: choice of a token, next forward, and so on, as one graph with one download.

A drafted token is chosen in float32, greedily or with the noise of its request: it is the token that the target would
choose from the same logits but for rounding, and a draft changes no text. All chains of a call have the depth of the
deepest; rows after the end of a shorter one store nothing, and the host cuts what should not have been drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.choice.draws import COUNTER, SEED, TEMPERATURE
from spec_kernels.gpu.choice.kernels import TILE, bounds, counters, temperature_of
from spec_kernels.gpu.choice.noise import philox
from spec_kernels.gpu.chunks import bucket_rows
from spec_kernels.gpu.device import device_lock, host_memory
from spec_kernels.gpu.graphs import Bucket, Buckets
from spec_kernels.gpu.launch import launch_options, run_alone, start_next, wait_for_previous
from spec_kernels.gpu.layout import FIELDS, Chunk, Layout, Size, Tile, sequence_tiles
from spec_kernels.gpu.lowering import Program
from spec_kernels.gpu.rows import combine_rows
from spec_kernels.gpu.tiles import PAGE, power_of_two
from spec_kernels.gpu.values import Facilities, Launch
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.drafts import DraftLimits, DraftOptions, Drafts, cut_chain
from spec_kernels.ops.device_function import device_function

CHAIN_FIELDS = 10
"""Integers of a chain: a draw's (``choice.description``) with other last fields."""
DEPTH, STEP = 7, 8
"""Fields of a chain: its depth; what is added to output position and to domain for every token (2)."""
_COUNTER, _DEPTH, _STEP = map(tl.constexpr, (COUNTER, DEPTH, STEP))


@dataclass(frozen=True, eq=False)
class Scores:
    """Results of a choice for every tile of B rows: float32 [B, T], and the token of each best score, int32.

    best, second: the largest scores. top, mass: the largest logit, and the sum of exp(logit - top).
    """

    best: Tensor
    second: Tensor
    top: Tensor
    mass: Tensor
    tokens: Tensor

    @staticmethod
    def empty(rows: int, vocab: int, device: torch.device) -> Scores:
        shape = rows, triton.cdiv(vocab, TILE)
        best, second, top, mass = (torch.empty(shape, device=device) for _ in range(4))
        return Scores(best, second, top, mass, torch.empty(shape, dtype=torch.int32, device=device))


@dataclass(frozen=True, eq=False)
class Following:
    """Inputs that a choice prepares for the next forward, whose rows and tiles are the sequences' in order.

    rows, tiles: int32 [B, FIELDS], see ``layout``. chains: int32 [B, CHAIN_FIELDS]: the draw of the next token, see
    ``choice.description``, with the depth of the chain, and what is added to output position and domain of its noise.
    ids: int64 [V], the target's token of each row of logits, or None. stays: forwards store nothing, and all stand in
    the place of the first.
    """

    rows: Tensor
    tiles: Tensor
    chains: Tensor
    ids: Tensor | None
    stays: bool = False


def choose_drafts(
    logits: Tensor, scores: Scores, following: Following, depth: int, tokens: Tensor, certainty: Tensor
) -> None:
    """Choose the token number ``depth`` of every chain, and describe the forward that reads it.

    :param logits: float32 [B, V]. :param tokens: int32 [B], the target's tokens.
    :param certainty: float32 [B]: the chance of a greedy token; of a drawn one the distance to the second score.
    """
    (rows, vocab), width, ids, chains = logits.shape, scores.best.shape[1], following.ids, following.chains
    every = scores.best, scores.second, scores.top, scores.mass, scores.tokens
    map_to = tokens if ids is None else ids
    _score_tiles[width, rows](
        logits, chains, map_to, *every, logits.stride(0), vocab, width, ids is not None, CHAIN_FIELDS,
        **launch_options(4),
    )  # fmt: skip
    _take_drafts[rows, 1](
        chains, *every, following.rows, following.tiles, map_to, tokens, certainty, depth,
        width, vocab, ids is not None, len(following.tiles) > 0, following.stays, FIELDS, CHAIN_FIELDS,
        triton.next_power_of_2(width), **launch_options(1),
    )  # fmt: skip


@device_function
def _join(best, second, token, score, other):
    """The two best scores of a set and one score more, and the token of the best: of equal scores the lower."""
    wins = (score > best) | ((score == best) & (other < token))
    second = tl.maximum(second, tl.where(wins, best, score))
    return tl.where(wins, score, best), second, tl.where(wins, other, token)


@device_function
def _score(value, temperature, high):
    """Logits at temperature 0, else logit / temperature + noise."""
    _, drawn = bounds(value, tl.where(temperature == 0, 1.0, temperature), high)
    return tl.where(temperature == 0, value, drawn)


@device_function
def _mapped_noise(ids, token, V, t, stream, domain, k0, k1):
    """The word of the noise of each token, by its number in the target: its counter is the target's."""
    own = tl.load(ids + token, token < V, other=0)
    counter, word = ((own >> 6) * 16 + (own & 15)).to(tl.uint32), (own >> 4) & 3
    word0, word1, word2, word3 = philox(counter, t, stream, domain, k0, k1)
    return tl.where(word == 0, word0, tl.where(word == 1, word1, tl.where(word == 2, word2, word3)))


@device_function
def _summarise(best, second, token, V):
    """The two best scores of all lanes and the token of the best; V if all are NaN."""
    winner = tl.max(best, 0)
    first = tl.min(tl.where(best == winner, token, V), 0)
    return winner, tl.max(tl.where(token == first, second, best), 0), first


@triton.jit
def _score_tiles(
    logits, chains, ids, best, second, top, mass, tokens, stride, V, TILES, MAPPED: tl.constexpr, FIELDS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The two best scores of a tile, and the mass of its logits."""
    start_next(DEPENDENT)
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    draw = chains + row * FIELDS
    wait_for_previous(DEPENDENT)  # the draw is written by the choice before
    temperature = temperature_of(draw).to(tl.float32)
    c0, c1, c2, c3, k0, k1, token = counters(draw, tile)
    if MAPPED:
        high0 = _mapped_noise(ids, token, V, c1, c2, c3, k0, k1)
        high1 = _mapped_noise(ids, token + 16, V, c1, c2, c3, k0, k1)
        high2 = _mapped_noise(ids, token + 32, V, c1, c2, c3, k0, k1)
        high3 = _mapped_noise(ids, token + 48, V, c1, c2, c3, k0, k1)
    else:
        high0, high1, high2, high3 = philox(c0, c1, c2, c3, k0, k1)
    at, low = logits + row * stride, float("-inf")
    value0, value1 = tl.load(at + token, token < V, low), tl.load(at + token + 16, token + 16 < V, low)
    value2, value3 = tl.load(at + token + 32, token + 32 < V, low), tl.load(at + token + 48, token + 48 < V, low)
    score = _score(value0, temperature, high0)
    first, other, of = score, tl.full(token.shape, low, tl.float32), token
    first, other, of = _join(first, other, of, _score(value1, temperature, high1), token + 16)
    first, other, of = _join(first, other, of, _score(value2, temperature, high2), token + 32)
    first, other, of = _join(first, other, of, _score(value3, temperature, high3), token + 48)
    first, other, of = _summarise(first, other, of, V)
    highest = tl.max(tl.maximum(tl.maximum(value0, value1), tl.maximum(value2, value3)), 0)
    level = tl.where(highest == low, 0.0, highest)
    total = tl.exp(value0 - level) + tl.exp(value1 - level) + tl.exp(value2 - level) + tl.exp(value3 - level)
    place = row * TILES + tile
    tl.store(best + place, first)
    tl.store(second + place, other)
    tl.store(top + place, highest)
    tl.store(mass + place, tl.sum(total, 0))
    tl.store(tokens + place, of)


@triton.jit
def _take_drafts(
    chains, best, second, top, mass, tokens, rows, tiles, ids, out, certainty, depth, TILES, V,
    MAPPED: tl.constexpr, TILED: tl.constexpr, STAYS: tl.constexpr, ROW_FIELDS: tl.constexpr, FIELDS: tl.constexpr,
    BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The token of one row. The next forward reads the description before it waits, so it must not start early."""
    row, tile = tl.program_id(0), tl.arange(0, BLOCK)
    wait_for_previous(DEPENDENT)
    place, exists, low = row * TILES + tile, tile < TILES, float("-inf")
    first, other, token = _summarise(
        tl.load(best + place, exists, low), tl.load(second + place, exists, low),
        tl.load(tokens + place, exists, V), V,
    )  # fmt: skip
    tops = tl.load(top + place, exists, low)
    highest = tl.max(tops, 0)
    total = tl.sum(tl.load(mass + place, exists, 0.0) * tl.exp(tops - tl.where(highest == low, 0.0, highest)), 0)
    draw = chains + row * FIELDS
    greedy = temperature_of(draw) == 0
    tl.store(certainty + row, tl.where(greedy, tl.exp(first - highest) / total, first - other))
    token = tl.minimum(token, V - 1)
    if MAPPED:
        token = tl.load(ids + token).to(tl.int32)
    tl.store(out + row, token)
    fields = rows + row * ROW_FIELDS
    tl.store(fields, token)
    tl.store(draw + _COUNTER, tl.load(draw + _COUNTER) + tl.load(draw + _STEP))
    tl.store(draw + _COUNTER + 2, tl.load(draw + _COUNTER + 2) + tl.load(draw + _STEP + 1))
    field = tl.arange(0, 4)
    if depth + 2 > tl.load(draw + _DEPTH):
        tl.store(fields + 3, -1)
    elif (depth > 0) & (not STAYS):
        # Position, place, and the last places that the row and its sequence attend to.
        tl.store(fields + 2 + field, tl.load(fields + 2 + field) + 1)
        if TILED:
            at = tiles + row * ROW_FIELDS + 3 + field
            tl.store(at, tl.load(at, field < 3, 0) + 1, field < 3)


@dataclass(frozen=True)
class ChainSize:
    """A bucket of chains. rows: of the logits. state: the tap that a forward reads of the one before, or None.

    keep: logits of all choices are kept.
    """

    rows: int
    depth: int
    state: str | None
    keep: bool


class DraftProgram:
    """The launches of chains of one bucket: a choice from the logits of a forward, and as often as they are deep a
    forward and a choice.

    logits: float32 [B, V], of the first choice. state: what the first forward takes as its only input, or None.
    results: int32 [2, depth, B], tokens and the bits of their certainty.
    rows: float32 [depth, B, V], logits of all choices, or None.
    """

    def __init__(self, facilities: Facilities, layout: Layout, size: ChainSize, vocab: int, ids: Tensor | None) -> None:
        """ids: int64 [V], see ``Following``."""
        self.of, self.size = facilities, size
        self.embedded: Tensor | None = None
        self.launches: list[tuple[str, Launch]] = []
        rows, device = size.rows, facilities.device
        zeros = lambda *shape, dtype=torch.float32: torch.zeros(shape, dtype=dtype, device=device)
        self._host = host_memory(rows * (CHAIN_FIELDS + 1), torch.int32, device)
        self._device = zeros(len(self._host), dtype=torch.int32)
        self._integers, self._ends = self._device[:-rows].view(rows, -1), self._device[-rows:]
        self.logits, self.scores = zeros(rows, vocab), Scores.empty(rows, vocab, device)
        self.results = zeros(2, size.depth, rows, dtype=torch.int32)
        self.rows = zeros(size.depth, rows, vocab) if size.keep else None
        tiles = layout.tiles if layout.size.tiles else layout.tiles[:0]
        self._following = Following(layout.rows, tiles, self._integers, ids, bool(facilities.model.borrowed))
        self.state: Tensor | None = None
        self._choose(0, self.logits)
        if size.depth > 1:
            self._write(Program(facilities, layout, frozenset({"logits", *([size.state] if size.state else [])})))

    def _write(self, program: Program) -> None:
        name = next(iter(program.inputs), None)
        self.state = None if name is None else program.inputs[name]
        (first, launch), *rest = program.launches
        for depth in range(1, self.size.depth):
            self.launches += [(first, partial(run_alone, launch)), *rest]
            if self.state is not None:
                copy = partial(combine_rows, "copy", self.state[: self.size.rows], program.outputs[self.size.state])
                self.launches.append(("state", copy))
            self._choose(depth, program.outputs["logits"])

    def _choose(self, depth: int, logits: Tensor) -> None:
        if self.rows is not None:
            self.launches.append(("rows", partial(combine_rows, "copy", self.rows[depth], logits)))
        results = self.results[0, depth], self.results[1, depth].view(torch.float32)
        choose = partial(choose_drafts, logits, self.scores, self._following, depth, *results)
        self.launches.append(("choose", choose))

    def fill(self, limits: Sequence[DraftLimits], ends: Sequence[int]) -> None:
        """Describe the choices of every chain. ends: the row of the forward before that each chain continues."""
        integers = self._host.numpy()
        integers[:] = 0
        integers[-self.size.rows :][: len(ends)] = ends
        for row, of in zip(integers[: -self.size.rows].reshape(-1, CHAIN_FIELDS), limits, strict=False):
            row[DEPTH] = of.depth
            if (noise := of.noise) is not None:
                seed, stream, domain = noise.source
                row[TEMPERATURE : TEMPERATURE + 2] = np.array([noise.temperature]).view(np.int32)
                row[SEED : SEED + 2] = np.array([seed & (1 << 64) - 1], np.uint64).view(np.int32)
                counter = np.array([noise.position, stream, domain], np.int64)
                row[COUNTER : COUNTER + 3] = counter.astype(np.uint32).view(np.int32)
                row[STEP : STEP + 2] = noise.onward
        self._device.copy_(self._host, non_blocking=True)

    def read_state(self, states: Tensor, picked: bool) -> None:
        """Copy what the first forward reads from rows of the forward before. picked: one for each chain, in order."""
        rows = self.state[: len(states)] if picked else self.state[: self.size.rows]
        combine_rows("copy", rows, states, index=None if picked else self._ends)


class Executor(Protocol):
    """The part of ``executor.Gpu`` that drafts need."""

    device: torch.device
    facilities: Facilities
    buckets: Buckets

    def run(self, batch: ForwardBatch) -> dict[str, Tensor]:
        """The requested outputs."""


def draft_on_device(
    executor: Executor, batch: ForwardBatch, limits: Sequence[DraftLimits], options: DraftOptions
) -> Drafts:
    """A chain after the last row of every sequence; see ``draft_chains``. One transfer to the host."""
    state = options.state
    outputs = executor.run(replace(batch, taps={"logits", *([state] if state else [])}))
    depth, count, stays = max(of.depth for of in limits), len(limits), bool(executor.facilities.model.borrowed)
    rows = [SequenceRows(s.cache, i, 1, s.end - stays) for i, s in enumerate(batch.sequences)]
    chunk = Chunk(0, count, rows, None, None)
    bucket = _bucket(
        executor,
        chunk,
        ChainSize(bucket_rows(count), depth, state, options.keep),
        outputs["logits"].shape[1],
        options.ids,
    )
    program = bucket.program
    ends = [s.first + s.rows - 1 for s in batch.sequences]
    positions = batch.positions.cpu().numpy()[ends] + (not stays)
    bucket.layout.fill(chunk, np.zeros(count, np.int64), positions, _tiles(chunk, 0 if stays else depth))
    with device_lock(executor.device):
        program.fill(limits, ends)
        program.logits[:count].copy_(outputs["logits"])
        if program.state is not None:
            program.read_state(outputs[state], picked=batch.final is not None)
        bucket.run()
    tokens, certainty = program.results.cpu()
    columns = zip(tokens.T.tolist(), certainty.view(torch.float32).T.tolist(), limits, strict=False)
    drafts = [cut_chain(t[: of.depth], c[: of.depth], of) for t, c, of in columns]
    if program.rows is not None:
        drafts = [replace(d, rows=program.rows[: len(d.tokens), i].clone()) for i, d in enumerate(drafts)]
    states = outputs[state] if state else None
    return Drafts(drafts, depth, batch.positions.numel() + count * (depth - 1), states)


def _bucket(executor: Executor, chunk: Chunk, size: ChainSize, vocab: int, ids: Tensor | None) -> Bucket[DraftProgram]:
    end = max(s.end for s in chunk.sequences) + size.depth
    tiles = 0 if chunk.sequences[0].cache is None else size.rows
    of_step = Size(size.rows, tiles, max(4, power_of_two(end // PAGE + 1)), -1, -1, tree=False)

    def create() -> Bucket[DraftProgram]:
        layout = Layout(of_step, executor.device)
        return Bucket(layout, DraftProgram(executor.facilities, layout, size, vocab, ids))

    return executor.buckets.get((size, of_step), create)


def _tiles(chunk: Chunk, depth: int) -> list[Tile]:
    """A tile of every row, with the pieces of the last forward."""
    tiles = [tile for s in chunk.sequences for tile in sequence_tiles(s, 1)]
    return [(*tile[:7], (tile[5] + depth) // PAGE + 1) for tile in tiles]
