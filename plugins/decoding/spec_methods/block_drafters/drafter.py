"""The hooks of a block drafter: what is stored of committed positions, and how a block becomes a draft."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Listing
from typing import Any, ClassVar

import attrs
import torch
from attrs.validators import ge, le
from spec_kernels.drafting import executor_of, target_weights
from torch import Tensor

from spec_core import (
    Compat,
    Draft,
    DraftStep,
    RollbackStep,
    Rows,
    Sequence,
    Span,
    StashKey,
    Target,
    hookimpl,
    load,
)
from spec_core.toolkit import (
    AcceptanceEstimate,
    DraftHead,
    PartialDraft,
    SampleMode,
    TokenDrafter,
    TreeLimits,
    draft_head,
    layer_ids_field,
    learn_draft,
    p_min_field,
    sample_field,
)
from spec_methods.block_drafters.layers import Context, Layers
from spec_methods.block_drafters.sequential import Independent, SequentialPart, sequential_part
from spec_methods.block_drafters.trees import BlockTree

BACKLOG = 32
"""Positions that wait for the next draft; with more, the weights are read for many at once."""


@attrs.define(eq=False)
class BlockState:
    """Data of one sequence."""

    context: Context
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)

    def fork(self) -> BlockState:
        """For another sequence with the same rows; its acceptance rate is its own."""
        return BlockState(self.context.fork())


@attrs.define(eq=False)
class Block(PartialDraft):
    """One sequence while it is drafted. rows: logits [n, Vd] of its block, states: [n, D] after the last norm."""

    context: Context = attrs.field(kw_only=True)
    branches: bool = attrs.field(kw_only=True)
    rows: Tensor | None = None
    states: Tensor | None = None

    @property
    def next_row(self) -> tuple[int, Tensor, Tensor]:
        """The token before the next drafted one, and the row that predicts it."""
        assert self.rows is not None and self.states is not None
        at = len(self.ids)
        return self.ids[-1] if at else self.seq.tokens[-1], self.rows[at], self.states[at]


@attrs.define(eq=False)
class BlockDrafter:
    """Drafts with a head that fills blocks. kind: of the head's file."""

    kind: ClassVar[str]
    file: str | None = attrs.field(default=None, metadata={"help": "file of the head; default: the target's own"})
    draft_max: int = attrs.field(
        default=15,
        validator=[ge(1), le(256)],
        metadata={"help": "max draft length; the head's block size is a limit too", "off": 256},
    )
    width: int = attrs.field(
        default=1, validator=[ge(1), le(64)], metadata={"help": "max children of a token; 1 drafts chains", "off": 1}
    )
    nodes_max: int = attrs.field(
        default=32, validator=[ge(1), le(256)], metadata={"help": "max tokens of a tree", "off": 256}
    )
    p_min: float | None = p_min_field("cut when the draft's acceptance probability falls below this; 0.3")
    sample: SampleMode = sample_field()
    layer_ids: str = layer_ids_field()
    head: DraftHead | None = attrs.field(default=None, init=False)
    layers: Layers | None = attrs.field(default=None, init=False)
    sequential: SequentialPart | None = attrs.field(default=None, init=False)
    watch: Any = attrs.field(default=None, init=False)
    memory: StashKey[BlockState] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        head = draft_head(target, self.kind, self.file, load, self.layer_ids)
        if not isinstance(head, DraftHead):
            return Compat(refusals=[head])
        return Compat(
            shares=True,
            needs=attrs.evolve(
                head.needs,
                trees=self.width > 1 and target.info.trees,
                weights=target_weights(head.file.source, head.file.head.tied),
            ),
            drafts=self._drafter.tree_proposals,
            forwards=lambda k: 1,
            load=lambda target: self._load(target, head),
            learns="tokens" if self.width > 1 else "length",
            notes=[head.note],
        )

    def _load(self, target: Target, head: DraftHead) -> None:
        self.head, trunk = head, executor_of(target)
        self.layers, self.sequential = Layers(head.file, trunk), sequential_part(head.file, trunk)

    @property
    def _drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample)

    # hooks

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        """Run one forward for all sequences, then choose tokens from its rows while they are likely to be accepted."""
        blocks = [b for seq, budget in step.undrafted if (b := self._begin(step, seq, budget))]
        if not blocks:
            return
        self.layers.learn([b.context for b in blocks if b.context.waits])
        rows, states = self.layers.blocks([b.context for b in blocks], [b.budget for b in blocks])
        step.report_cost(forwards=1, rows=sum(b.budget + self.layers.known_rows for b in blocks))
        for block, logits, hidden in zip(blocks, rows, states, strict=True):
            block.rows, block.states = logits, self.sequential.read_block(logits, hidden, block.context.feature)
        self._fill_chains(step, [block for block in blocks if not block.branches])
        for block in blocks:
            if not block.branches and (draft := self._drafter.finish(block)):
                step.propose(block.seq, draft)
        for tree, draft in self._drafted_trees([self._tree(step, block) for block in blocks if block.branches]):
            if draft:
                step.propose(tree.seq, draft)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, part in step.draft_results:
            learn_draft(seq.stash[self.memory].estimate, part.draft, part.full_verdict.path)

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Keep the hidden states of committed positions, over the rows of the last block; if there are many, learn."""
        contexts = [self._store_states(seq, span) for seq, span in rows.by_sequence()]
        self.layers.learn([context for context in contexts if context.waits > BACKLOG])

    # one draft

    def _store_states(self, seq: Sequence, span: Span) -> Context:
        memory = seq.stash.get(self.memory)
        if memory is None:
            memory = seq.stash[self.memory] = BlockState(self.layers.context())
        memory.context.take(span.start, torch.cat(self.head.states(span), -1))
        memory.context.token = span.next[-1]
        embed = span.next_embeds.get(len(span.next) - 1)
        memory.context.embed = None if embed is None else self.layers.embedding(embed)
        return memory.context

    def _begin(self, step: DraftStep, seq: Sequence, budget: int) -> Block | None:
        memory = seq.stash.get(self.memory)
        if memory is None:
            return None
        memory.estimate.fade()
        if memory.estimate.value < self._drafter.price(step, seq):
            return None
        longest = min(budget, self.draft_max, self.layers.longest)
        branches = self.width > 1 and step.trees and not (step.wants_probs and self._drafter.samples(seq))
        return Block(seq, longest, memory.estimate, context=memory.context, branches=branches)

    def _fill_chains(self, step: DraftStep, blocks: Listing[Block]) -> None:
        """Choose tokens of all chains from left to right: in one call, or one at a time where they are chosen here."""
        for keep in (True, False):
            self._draft_at_once(step, [b for b in blocks if self._drafter.keeps_probs(step, b.seq) == keep], keep)
        while growing := [block for block in blocks if block.open]:
            for block, row in zip(growing, self.sequential.follow([b.next_row for b in growing]), strict=True):
                token = self._drafter.extend(step, block, row.logits, row.chance)
                if self.watch is not None:
                    self.watch(token, row.logits)

    def _draft_at_once(self, step: DraftStep, blocks: Listing[Block], keep: bool) -> None:
        """Whole chains. keep: with the rows that a rule reads."""
        part = self.sequential
        if not isinstance(part, Independent) or self.watch is not None:
            return
        limited = [(b, of) for b in blocks if (of := self._drafter.limits(step, b, part.chooses)) is not None]
        if limited:
            parts = [(b.seq.tokens[-1], b.rows, b.states) for b, _ in limited]
            chains = part.draft(parts, [of for _, of in limited], keep)
            for (block, _), chain in zip(limited, chains, strict=True):
                self._drafter.add_tokens(block, chain.tokens, chain.chances, chain.rows)

    def _drafted_trees(self, trees: Listing[BlockTree]) -> Iterator[tuple[BlockTree, Draft | None]]:
        """Drafts of trees: of those whose tokens need not be chosen here in one call."""
        part = self.sequential
        if not isinstance(part, Independent):
            yield from ((tree, tree.draft()) for tree in trees)
            return
        limited = [(tree, limits) for tree in trees if (limits := tree.whole(part)) is not None]
        if limited:
            parts = [(tree.seq.tokens[-1], tree.rows, tree.states) for tree, _ in limited]
            drafts = part.draft(parts, [limits for _, limits in limited], False)
            for (tree, _), of in zip(limited, drafts, strict=True):
                trust = tree.trust if part.sure is None else 1.0
                yield tree, tree.finish(of.tokens, of.parents, [min(1.0, own) * trust for own in of.chances])
        done = [tree for tree, _ in limited]
        yield from ((tree, tree.draft()) for tree in trees if tree not in done)

    def _tree(self, step: DraftStep, block: Block) -> BlockTree:
        seq, nodes = block.seq, min(step.nodes(block.seq), self.nodes_max)
        limits = TreeLimits(block.budget, nodes, self.width, self._drafter.price(step, seq), seq.stop.tokens)
        return BlockTree(
            step, seq, self._drafter, self.sequential, limits, block.rows, block.states, block.estimate.value
        )
