"""UNO: the target with an adapter predicts several tokens from noise, and the next one exactly (ifm-ai/uno).

One causal pass reads the last token with the target's own weights and, after it, noise tokens with a LoRA adapter. The
first row gives the target's own next token, the others guess the tokens after it: as a chain, or as the likeliest paths
through ``width`` tokens of each row. Published engines commit the first token and keep its row; here it is the draft's
first token, so the verification evaluates the last token again::

    spec generate -m Qwen/Qwen3-8B --method uno=ADAPTER -p "def add(a, b):"
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import attrs
from attrs.validators import ge
from torch import Tensor

from spec_core import Compat, Draft, DraftStep, Needs, Refusal, Sequence, Target, hookimpl
from spec_core.toolkit import (
    BlockOfTarget,
    Overlay,
    TokenDrafter,
    TreeLimits,
    TreeNode,
    confidences,
    grow_tree,
    overlay_problem,
    p_min_field,
    partial_forward,
    partial_problem,
    read_adapter,
)


@attrs.define(eq=False)
class BlockNode(TreeNode):
    """A node, and the tokens of its path up to its own."""

    path: list[int]


@attrs.define(eq=False)
class Uno:
    """Draft from noise with the target's layers and an adapter."""

    folder: str = attrs.field(default="", metadata={"help": "the folder of the adapter"})
    block: int = attrs.field(default=8, validator=ge(2), metadata={"help": "rows of a block"})
    tokens_max: int = attrs.field(default=0, validator=ge(0), metadata={"help": "noise is below this id; 0: any token"})
    draft_max: int = attrs.field(default=256, validator=ge(1), metadata={"help": "longest draft"})
    width: int = attrs.field(default=1, validator=ge(1), metadata={"help": "tokens of a row in a tree; 1: a chain"})
    nodes_max: int = attrs.field(default=12, validator=ge(1), metadata={"help": "most tokens of a tree", "off": 256})
    p_min: float | None = p_min_field("end a draft that is less likely to be accepted; 0.3")
    rows: BlockOfTarget = attrs.field(default=None, init=False)
    vocab: int = attrs.field(default=0, init=False)
    drafter: TokenDrafter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.drafter = TokenDrafter(self.p_min)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        reason = self.misfit(target)
        return Compat(
            needs=Needs(partial=True, trees=self.width > 1),
            drafts={"deterministic", "unknown"} if self.width > 1 else self.drafter.proposals,
            forwards=lambda drafted: 1,
            refusals=[Refusal(reason, "write --method uno=FOLDER, of an adapter for this target")] if reason else [],
            load=self.load,
            catches_up=True,
        )

    def misfit(self, target: Target) -> str | None:
        """Why the adapter cannot draft for a target, from shapes alone."""
        if not self.folder:
            return "no folder is named"
        if partial_problem(target) is not None:
            return None  # the run says it
        return overlay_problem(target, self.overlay(values=False))

    def overlay(self, values: bool = True) -> Overlay:
        return Overlay(read_adapter(self.folder, values), plain_rows=1)

    def load(self, target: Target) -> None:
        blocks, self.vocab = range(target.info.layers), target.info.vocab
        rows, plain = partial_forward(target, blocks, overlay=self.overlay()), partial_forward(target, blocks)
        self.rows = BlockOfTarget(rows, plain, self.block)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        if self.width == 1:
            self.rows.draft(step, self.drafter, self.draft_max, self.block_tokens)
            return
        for seq, budget, rows in self.rows.evaluate(step, self.block_tokens):
            if nodes := self.grow(step, seq, min(budget, self.draft_max, len(rows)), rows):
                drawn = self.drafter.uses_target_noise(step, seq)
                ids, parents = [node.token for node in nodes], [node.parent for node in nodes]
                draft = Draft(ids, "unknown" if drawn else "deterministic", None, parents, confidences(nodes))
                step.propose(seq, draft)

    def grow(self, step: DraftStep, seq: Sequence, depth: int, rows: Tensor) -> list[BlockNode]:
        """The likeliest paths through the rows of a block, which do not depend on each other."""
        nodes, p_min = min(step.nodes(seq), self.nodes_max), self.drafter.price(step, seq)

        def following(node: BlockNode, at: int) -> Iterator[BlockNode]:
            width = self.width if node.depth else 1  # the first row is the target's own
            for token, own in self.drafter.candidates(step, seq, node.path, rows[node.depth], width):
                chance = node.chance * own if node.depth else 1.0
                if chance >= p_min:
                    yield BlockNode(token, at, node.depth + 1, chance, [*node.path, token])

        root = BlockNode(-1, -1, 0, 1.0, [])
        return grow_tree(following(root, -1), following, TreeLimits(depth, nodes, self.width, p_min, seq.stop.tokens))

    def block_tokens(self, seq: Sequence) -> list[int]:
        """The last token, and noise that is the same for a text."""
        draws, highest = Random(len(seq.tokens)), min(self.tokens_max or self.vocab, self.vocab)
        return [seq.tokens[-1], *(draws.randrange(1, highest) for _ in range(self.block - 1))]
