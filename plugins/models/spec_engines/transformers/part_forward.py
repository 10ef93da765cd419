"""Some blocks of a model of transformers, in the caches of its sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from spec_engines.transformers.cache_rows import TransformersRows, has_rows, stores_nothing
from spec_engines.transformers.call import Caller, batched_cache, pad_rows
from spec_engines.transformers.masks import additive_mask

PartRows = Sequence[tuple[Any, int, list[int]]]
"""Sequences with the start of their rows and the tokens, see ``PartialForward``."""


@attrs.frozen(eq=False)
class PartForward:
    """Some blocks of a target: the others give back what they get. See ``spec_core.toolkit.PartialForward``.

    turns, batches: of the target. blocks: their numbers. window, sinks: rows that attention sees, 0: all. as_tuple:
    whether a block returns a tuple.
    """

    caller: Caller
    turns: Lock
    batches: bool
    blocks: frozenset[int]
    window: int
    sinks: int
    as_tuple: bool

    def forward(self, rows: PartRows) -> Tensor:
        """Logits [n, V] after the last of the tokens of each sequence."""
        return self._logits(rows, lambda count: count - 1)

    def forward_rows(self, rows: PartRows, first: int = 0) -> list[Tensor]:
        """Logits of the rows of each sequence from ``first`` on."""
        counts = [max(len(tokens) - first, 0) for _, _, tokens in rows]
        return list(self._logits(rows, lambda count: min(first, count)).split(counts))

    def _logits(self, rows: PartRows, first: Any) -> Tensor:
        for seq, start, tokens in rows:
            self._check(seq, start, tokens)
        calls = [rows] if self.batches and len(rows) > 1 else [[row] for row in rows]
        with self.turns, torch.inference_mode(), skip_blocks(self._others(), self.as_tuple):
            outputs = [logits for call in calls for logits in self._call(call)]
        with torch.no_grad():  # a copy outside of inference mode, so that plugins may change it
            return torch.cat([one[first(len(one)) :] for one in outputs])

    def _check(self, seq: Any, start: int, tokens: list[int]) -> None:
        if start < seq.evaluated or not tokens:
            raise ValueError(f"rows from {start} on, of {len(tokens)} tokens: {seq.evaluated} rows are evaluated")
        for block in self.blocks:
            layer = seq.slot.state.cache.layers[block]
            if has_rows(layer) and layer.get_seq_length() < start:
                raise ValueError(f"rows from {start} on: block {block} has {layer.get_seq_length()} rows")

    def _others(self) -> list[nn.Module]:
        return [block for i, block in enumerate(self.caller.layout.blocks) if i not in self.blocks]

    def _call(self, rows: PartRows) -> list[Tensor]:
        """Logits of all rows of some sequences, in one call of the model."""
        for seq, start, _ in rows:
            seq.slot.state.cut(start)
        caller, layout, device = self.caller, self.caller.layout, self.caller.device
        options = {
            layout.cache: batched_cache([seq.slot.state.cache for seq, _, _ in rows], [len(t) for _, _, t in rows]),
            "position_ids": pad_rows([torch.arange(at, at + len(tokens), device=device) for _, at, tokens in rows]),
            "attention_mask": additive_mask(self._attended_places(rows), caller.dtype, device),
        }
        tokens = pad_rows([torch.tensor(tokens, device=device) for _, _, tokens in rows])
        logits = caller.model(tokens, use_cache=True, **options).logits
        return [logits[i, : len(tokens)] for i, (_, _, tokens) in enumerate(rows)]

    def _attended_places(self, rows: PartRows) -> Tensor:
        """[B, n, width]: whether a row attends to a position."""
        count = max(len(tokens) for _, _, tokens in rows)
        places = torch.arange(max(start + len(tokens) for _, start, tokens in rows))
        at = torch.tensor([start for _, start, _ in rows])[:, None, None] + torch.arange(count)[:, None]
        seen = places <= at
        return seen & ((places > at - self.window) | (places < self.sinks)) if self.window else seen


@contextmanager
def skip_blocks(blocks: Iterable[nn.Module], as_tuple: bool) -> Iterator[None]:
    """Let these blocks give back what they get."""

    def pass_on(hidden_states: Tensor, *args: Any, **keywords: Any) -> Any:
        return (hidden_states,) if as_tuple else hidden_states

    with ExitStack() as stack:
        for block in blocks:
            block.forward = pass_on
            stack.callback(delattr, block, "forward")
        yield


def part_of(
    caller: Caller, turns: Lock, batches: bool, blocks: Iterable[int], window: int = 0, sinks: int = 0
) -> PartForward:
    """Some blocks of a target. Raises ValueError for blocks that are not there, or that read rows of one left out."""
    chosen, count = frozenset(blocks), len(caller.layout.blocks)
    if missing := sorted(chosen - set(range(count))):
        raise ValueError(f"blocks {missing} are not there: the model has 0 to {count - 1}")
    layers = TransformersRows(caller.model.config).cache.layers
    orphans = [i for i in sorted(chosen) if stores_nothing(layers[i])]
    if orphans and chosen != frozenset(range(max(chosen) + 1)):
        raise ValueError(f"blocks {orphans} read keys and values of others: give them with all blocks before them")
    with turns:
        return PartForward(caller, turns, batches, chosen, window, sinks, _returns_tuple(caller))


def _returns_tuple(caller: Caller) -> bool:
    """Whether blocks return a tuple, as some models have it: one token shows it."""
    outputs: list[Any] = []
    hook = caller.layout.blocks[0].register_forward_hook(lambda module, args, output: outputs.append(output))
    try:
        with torch.inference_mode():
            caller.model(torch.zeros(1, 1, dtype=torch.long, device=caller.device), use_cache=False)
    finally:
        hook.remove()
    return isinstance(outputs[0], tuple)
