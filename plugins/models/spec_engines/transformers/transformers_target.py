"""The Target: calls of the model for the rows of a step, and the rollback of its cache."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

import attrs
import torch
from spec_kernels.layer_executor import StandaloneExecutor
from torch import Tensor

from spec_core import (
    Batch,
    Compat,
    Needs,
    Part,
    RollbackStep,
    Rows,
    Sequence,
    TargetInfo,
    TargetOutput,
    Tokenizer,
    hookimpl,
)
from spec_core.toolkit import CacheReader, NextTokenLayer
from spec_engines.transformers.cache_rows import Kinds, TransformersRows
from spec_engines.transformers.call import Caller, Found, Span, group_spans
from spec_engines.transformers.layout import Layout
from spec_engines.transformers.part_forward import PartForward, part_of
from spec_engines.transformers.quantised import matrix
from spec_engines.transformers.shown_cache import ShownCache

EVERY = 256
"""Tokens between two checkpoints of a model with recurrent layers, which also keeps one at the end of a prompt."""
CHECKPOINTS_MAX = 4
"""Max checkpoints of a sequence: the last ones are kept."""


@attrs.define(eq=False)
class TransformersTarget:
    """A causal language model of transformers. ``model`` is None when only metadata was read.

    batches: several sequences share a call, as a padded batch; else each has calls of its own. With recurrent layers
    it has two, because state is copied between pending rows and draft rows. Calls of several threads take turns.
    described_cache: this project's description of the cache, where drafters read it; their layers share an executor.
    turns: held by the thread that calls the model.
    """

    info: TargetInfo
    tokenizer: Tokenizer | None
    model: Any
    layout: Layout
    kinds: Kinds
    next_token_layer: NextTokenLayer | None = None
    described_cache: CacheReader | None = None
    batches: bool = False
    caller: Caller = attrs.field(init=False)
    layer_executor: StandaloneExecutor | None = attrs.field(default=None, init=False)
    cache_reader: ShownCache | None = attrs.field(default=None, init=False)
    turns: Lock = attrs.field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.caller = Caller(self.model, self.layout, self.info.device, self.dtype)
        if self.described_cache is not None:
            executor = StandaloneExecutor(self)
            self.cache_reader = ShownCache(self.described_cache, executor)
            self.layer_executor = None if self.model is None else executor

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of computed values; weights may be quantised."""
        return getattr(torch, self.info.dtype)

    # the Target protocol

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        with self.turns, torch.inference_mode():
            outputs = self._evaluate(batch, needs)
        with torch.no_grad():  # copies outside of inference mode, so that plugins may change and train on them
            return TargetOutput(
                logits=torch.cat([one.logits for one in outputs]),
                hidden={i: torch.cat([one.hidden[i] for one in outputs]) for i in needs.hidden},
                final=torch.cat([one.final for one in outputs]) if needs.final else None,
            )

    def _evaluate(self, batch: Batch, needs: Needs) -> list[Found]:
        """Outputs of the calls for a batch, in the order of its rows."""
        for part in batch.parts:
            part.seq.slot.state.cut(part.start)
        if self.kinds.recurrent:
            return [results for part in batch.parts for results in self._twice(part, batch, needs)]
        spans = [Span.of(part, range(part.row, part.first_draft_row + part.drafted), needs) for part in batch.parts]
        calls = group_spans(spans) if self.batches else [[span] for span in spans]
        results = {
            span.rows.start: one
            for call in calls
            for span, one in zip(call, self.caller.call(call, batch, needs), strict=True)
        }
        return [results[span.rows.start] for span in spans]

    def _twice(self, part: Part, batch: Batch, needs: Needs) -> list[Found]:
        """The pending rows, and the draft rows in a call of their own, before which recurrent state is copied."""
        result = self.caller.call([Span.of(part, range(part.row, part.first_draft_row), needs)], batch, needs)
        if part.drafted:
            part.seq.slot.state.before = part.seq.slot.state.copy_states()
            drafted = range(part.first_draft_row, part.first_draft_row + part.drafted)
            result += self.caller.call([Span.of(part, drafted, needs)], batch, needs)
        return result

    def tensor(self, name: str) -> Tensor:
        """``token_embd.weight`` or ``output.weight``, dequantised. Raises KeyError for any other."""
        return matrix(self.layout.module(name), name, self.info.width, self.dtype)

    @property
    def partial_problem(self) -> str | None:
        """Why no part of the blocks can run; None if it can."""
        if self.kinds.recurrent:
            return "its recurrent blocks keep a state"
        if not self.info.trees:
            return "it does not follow a mask of the caller"
        return None

    def partial_forward(self, blocks: Iterable[int], window: int = 0, *, sinks: int = 0) -> PartForward:
        """Some blocks, with the embedding and the output, in the caches of this target's sequences."""
        if (problem := self.partial_problem) is not None:
            raise ValueError(problem)
        return part_of(self.caller, self.turns, self.batches, blocks, window, sinks)

    def open(self, seq: Sequence, want: int) -> int:
        """A model with recurrent layers continues only from checkpoints of its slot."""
        slot = seq.slot
        if slot.state is None:
            slot.state = TransformersRows(self.model.config)
            return 0
        if not self.kinds.recurrent:
            return want
        start = max((p for p in slot.checkpoints if p <= want), default=0)
        self.restore(seq, start)
        return start

    def close(self, seq: Sequence) -> None:
        seq.slot.state = None

    def checkpoint(self, seq: Sequence) -> Any:
        """Copies of all recurrent tensors, None if there are none."""
        return seq.slot.state.copy_states() if self.kinds.recurrent else None

    def restore(self, seq: Sequence, position: int) -> None:
        """Rows of attention need no restoring: the next forward cuts them."""
        if self.kinds.recurrent:
            seq.slot.state.put(seq.slot.checkpoints[position] if position else None)

    # the plugin

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns=self.info.states)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        """Move a kept path of a tree together; restore recurrent state, unless the whole draft was kept."""
        for seq, verdict in step.verdicts.items():
            part, memory = step.part(seq), seq.slot.state
            if self.kinds.recurrent and len(verdict.path) < part.drafted:
                memory.put(memory.before)
                if verdict.path:
                    step.rewind(seq, part.end)
            elif verdict.path and verdict.path[-1] >= len(verdict.path):
                memory.compact(part.end, verdict.path)
            memory.before = None

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Make checkpoints, from which a later request with the same beginning can continue."""
        if self.kinds.recurrent:
            for seq in rows.spans:
                self._keep(seq)

    def _keep(self, seq: Sequence) -> None:
        kept, here = seq.slot.checkpoints, seq.evaluated
        if here == seq.prompt_len or here // EVERY > max(kept, default=0) // EVERY:
            kept[here] = self.checkpoint(seq)
        while len(kept) > CHECKPOINTS_MAX:
            del kept[min(kept)]
