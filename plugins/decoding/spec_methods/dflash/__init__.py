"""DFlash (z-lab, block diffusion): a head fills a block of masked tokens in one forward.

Keys and values of committed positions are made from the target's hidden states before the next draft, of many positions
at once; a draft of any length costs one forward, for all sequences together.

Example: with blocks of 4 the forward reads ``cat`` and three mask tokens after it, attends to the features of
all earlier tokens, and predicts all three at once: ``sat``, ``on``, ``the``.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from attrs.validators import ge, le
from spec_kernels.model.head import target_weights
from spec_kernels.model.trunk import executor_of
from torch import Tensor

from spec_core import Compat, Rows, Sequence, Span, StashKey, Step, Target, hookimpl, load
from spec_core.toolkit import (
    AcceptanceEstimate,
    DraftHead,
    PartialDraft,
    Reading,
    SampleMode,
    TokenDrafter,
    draft_head,
    layer_ids_field,
    p_min_field,
    sample_field,
)
from spec_methods.dflash.layers import Context, Layers

BACKLOG = 32
"""Positions that wait for the next draft; with more, the weights are read for many at once."""


@attrs.define(eq=False)
class DFlashState:
    """Data of one sequence."""

    context: Context
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)

    def fork(self) -> DFlashState:
        """Copy for another sequence with the same rows; its acceptance rate is its own."""
        return DFlashState(self.context.fork())


@attrs.define(eq=False)
class Block(PartialDraft):
    """One sequence while it is drafted."""

    context: Context = attrs.field(kw_only=True)


@attrs.define(eq=False)
class DFlash:
    """Drafts with a DFlash head that was trained for the target."""

    file: str | None = attrs.field(default=None, metadata={"help": "file of the head; default: the target's own"})
    draft_max: int = attrs.field(
        default=15,
        validator=[ge(1), le(256)],
        metadata={"help": "max draft length; the head's block size is a limit too", "off": 256},
    )
    p_min: float | None = p_min_field("cut when the draft's acceptance probability falls below this; 0.3")
    sample: SampleMode = sample_field()
    layer_ids: Reading = layer_ids_field()
    head: DraftHead | None = attrs.field(default=None, init=False)
    layers: Layers | None = attrs.field(default=None, init=False)
    watch: Any = attrs.field(default=None, init=False)
    memory: StashKey[DFlashState] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        head = draft_head(target, "dflash", self.file, load, self.layer_ids)
        if not isinstance(head, DraftHead):
            return Compat(refusals=[head])
        return Compat(
            shares=True,
            needs=attrs.evolve(head.needs, weights=target_weights(head.file.source)),
            drafts=self._drafter.proposals,
            forwards=lambda k: 1,
            load=lambda target: self._load(target, head),
        )

    def _load(self, target: Target, head: DraftHead) -> None:
        self.head, self.layers = head, Layers(head.file, executor_of(target))

    @property
    def _drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample)

    # hooks

    @hookimpl
    def draft(self, step: Step) -> None:
        """Evaluate one forward for all sequences, then draft the tokens of its rows that are likely to be accepted."""
        blocks = [b for seq, budget in step.undrafted if (b := self._begin(step, seq, budget))]
        if not blocks:
            return
        self.layers.learn([b.context for b in blocks if b.context.waits])
        rows = self.layers.blocks([b.context for b in blocks], [b.budget for b in blocks])
        step.report_cost(forwards=1, rows=sum(b.budget + 1 for b in blocks))
        for block, logits in zip(blocks, rows, strict=True):
            self._take(step, block, logits)
            step.propose(block.seq, self._drafter.finish(block))

    @hookimpl
    def rollback(self, step: Step) -> None:
        for seq, part in step.draft_results:
            seq.stash[self.memory].estimate.learn(part.drafted, len(part.full_verdict.path))

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Keep the hidden states of committed positions, over the rows of the last block; if there are many, learn."""
        contexts = [self._store_states(seq, span) for seq, span in rows.by_sequence()]
        self.layers.learn([context for context in contexts if context.waits > BACKLOG])

    # one draft

    def _store_states(self, seq: Sequence, span: Span) -> Context:
        memory = seq.stash.get(self.memory)
        if memory is None:
            memory = seq.stash[self.memory] = DFlashState(self.layers.context())
        memory.context.take(span.start, torch.cat(self.head.states(span), -1))
        memory.context.token = span.next[-1]
        embed = span.next_embeds.get(len(span.next) - 1)
        memory.context.embed = None if embed is None else self.layers.embedding(embed)
        return memory.context

    def _begin(self, step: Step, seq: Sequence, budget: int) -> Block | None:
        memory = seq.stash.get(self.memory)
        if memory is None:
            return None
        memory.estimate.fade()
        if memory.estimate.value < self._drafter.price(step, seq):
            return None
        longest = min(budget, self.draft_max, self.layers.head.block - 1)
        return Block(seq, longest, memory.estimate, context=memory.context)

    def _take(self, step: Step, block: Block, logits: Tensor) -> None:
        for row in logits:
            token = self._drafter.extend(step, block, row)
            if self.watch is not None:
                self.watch(token, row)
            if not block.open:
                return
