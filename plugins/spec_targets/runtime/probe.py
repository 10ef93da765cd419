"""Does a row get the same bits in any company? Asked of the model's own shapes when it is loaded.

Products are computed in tiles of one size, so that it must be so; but what a row's place in a tile does to it, and what
torch does between the products, is found by trying. One block of each kind is tried, and the output matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from spec_kernels.nn.cache import KVCache
from spec_kernels.nn.decoder import Decoder
from spec_kernels.nn.recurrence import Lines, Recurrence
from spec_kernels.nn.states import StatePool
from spec_kernels.nn.tiles import TILE
from spec_kernels.nn.window import Stretch, causal
from torch import Tensor

from spec_targets.runtime.config import Config

CONTEXT, BEFORE, DRAFTS = 120, 3, 2 * TILE + 1
"""Rows before the one that is tried, those of them that come with it, and those behind it: these begin a new block of
the cache."""


@torch.inference_mode()
def exact(decoder: Decoder, config: Config, dtype: torch.dtype, device: torch.device) -> str:
    """``yes``, or ``no`` and why."""
    if device.type != "cpu" or dtype != torch.float32:
        return f"no: on {device} in {str(dtype).removeprefix('torch.')} sums are ordered by the shape of a product"
    context = min(CONTEXT, config.context - DRAFTS - 1)
    if context <= BEFORE:
        return f"no: not tried, its context has {config.context} positions only"
    probe = Probe(decoder, config, context, one_of_each(config))
    for company, rows in probe.tried():
        if not torch.equal(rows, probe.alone.expand_as(rows)):
            apart = (rows - probe.alone).abs().max()
            threads = torch.get_num_threads()
            return f"no: a row {company} differs by {apart:.1g} from the same row alone ({threads} threads)"
    return "yes"


def one_of_each(config: Config) -> list[int]:
    """The first block of each kind."""
    return sorted({config.kind(i): i for i in reversed(range(config.layers))}.values())


class Probe:
    """A text of random tokens over some blocks. alone: logits [1, V] of its row ``context`` by itself."""

    @torch.inference_mode()
    def __init__(self, decoder: Decoder, config: Config, context: int, chosen: Sequence[int]) -> None:
        blocks = [decoder.blocks[i] for i in chosen]
        self.decoder = Decoder(decoder.embedding, blocks, decoder.norm, decoder.head, decoder.rotary)
        self.config, self.context = config, context
        self.layers = 1 + max((config.place(i) for i in chosen if i not in config.recurrent), default=0)
        recurring = 1 + max((config.place(i) for i in chosen if i in config.recurrent), default=-1)
        self.pool = StatePool(config.delta, recurring) if recurring else None
        numbers = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(config.vocab, (context + 1 + DRAFTS,), generator=numbers)
        self.cache, self.place = self._room()
        start = context - BEFORE
        self._forward([(self.cache, self.place, 0, start, 0)])
        self.before = self._state(self.place)
        self._forward([(self.cache, self.place, start, BEFORE, 0)])
        self.here = self._state(self.place)
        self.alone = self.one_row()

    @torch.inference_mode()
    def one_row(self) -> Tensor:
        """A forward of the row by itself."""
        return self._logits([0])

    def tried(self) -> list[tuple[str, Tensor]]:
        """The same row in company: what it is, and logits [rows, V], each of which must be those alone."""
        found = [
            ("in another place of a tile", self._logits([0] * TILE)),
            ("before drafts", self._logits([DRAFTS])[:1]),
            ("beside other sequences", self._logits([0, DRAFTS, 0])[[0, 1, DRAFTS + 2]]),
            ("that comes with those before it", self._together()[-1:]),
        ]
        if self.pool is None:  # recurrent states of whole pieces of a prompt are computed together, whoever reads them
            found.append(("behind a prompt in pieces", self._after_pieces()))
        return found

    def _logits(self, drafts: list[int]) -> Tensor:
        """[rows, V] of sequences that all continue the text at ``context``, each with so many drafts."""
        places = [self._copied(self.here) for _ in drafts]
        cache = self.cache  # whatever they store there is equal
        logits = self._forward([(cache, p, self.context, 1, n) for p, n in zip(places, drafts, strict=True)])
        self._give(places)
        return logits

    def _together(self) -> Tensor:
        place = self._copied(self.before)
        logits = self._forward([(self.cache, place, self.context - BEFORE, BEFORE + 1, 0)])
        self._give([place])
        return logits

    def _after_pieces(self) -> Tensor:
        cache, _ = self._room()
        step = TILE - 3
        for start in range(0, self.context, step):
            self._forward([(cache, -1, start, min(step, self.context - start), 0)])
        return self._forward([(cache, -1, self.context, 1, 0)])

    def _forward(self, parts: list[tuple[KVCache, int, int, int, int]]) -> Tensor:
        """Logits [R, V]; parts: cache, place of the state, first position, pending rows, drafts."""
        positions: list[int] = []
        stretches, lines = [], Lines()
        for cache, place, start, pending, drafts in parts:
            rows = pending + drafts
            mask = causal(rows) if rows > 1 else None
            stretches.append(Stretch(cache, len(positions), rows, start, mask))
            positions += range(start, start + rows)
            lines.add(place, start, pending, range(-1, drafts - 1), [], 0)
        at = torch.tensor(positions)
        recurrence = None if self.pool is None else Recurrence(self.pool, lines.lineage(), None, [])
        x, _ = self.decoder.trunk(self.decoder.embed(self.tokens[at]), at, stretches, recurrence=recurrence)
        return self.decoder.answers(x[: len(positions)])

    def _room(self) -> tuple[KVCache, int]:
        c = self.config
        cache = KVCache(self.layers, c.kv_heads, c.head, c.head, self.context + 1 + DRAFTS)
        return cache, -1 if self.pool is None else self.pool.take()[0]

    def _state(self, place: int) -> tuple[Tensor, Tensor] | None:
        return None if self.pool is None else self.pool.copy(place)

    def _copied(self, state: tuple[Tensor, Tensor] | None) -> int:
        if self.pool is None:
            return -1
        (place,) = self.pool.take()
        self.pool.put(place, state)
        return place

    def _give(self, places: list[int]) -> None:
        if self.pool is not None:
            self.pool.give(places)
