"""Drafts of methods whose rows run through the target itself, a block of them at once."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from torch import Tensor

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.sequence import Sequence
from spec_core.contract.target_parts import PartialForward
from spec_core.toolkit.acceptance import AcceptanceEstimate
from spec_core.toolkit.token_drafter import PartialDraft, TokenDrafter


@attrs.frozen
class BlockOfTarget:
    """A forward of the target's blocks over the last token and rows after it, whose logits are a draft.

    rows: the forward of the block, as with an ``Overlay``. plain: the same blocks with the target's own weights.
    size: rows of a block. first: number of the first row whose logits are read.
    """

    rows: PartialForward
    plain: PartialForward
    size: int
    first: int = 0

    def draft(
        self, step: DraftStep, drafter: TokenDrafter, draft_max: int, block_tokens: Callable[[Sequence], list[int]]
    ) -> None:
        """Propose a chain for every sequence whose block ``evaluate`` reads."""
        for seq, budget, rows in self.evaluate(step, block_tokens):
            draft = PartialDraft(seq, min(budget, draft_max, len(rows)), AcceptanceEstimate())
            for row in rows:
                if draft.open:
                    drafter.extend(step, draft, row)
            step.propose(seq, drafter.finish(draft))

    def evaluate(
        self, step: DraftStep, block_tokens: Callable[[Sequence], list[int]]
    ) -> list[tuple[Sequence, int, Tensor]]:
        """Sequences without a draft, with their budget and the logits [size - first, V] of their blocks.

        block_tokens: ``size`` tokens of a block, first the text's last one. A sequence with pictures, or with more
        tokens to evaluate than a block has rows, such as a prompt, is left out.
        """
        ready = [(seq, n) for seq, n in step.undrafted if n and not seq.embeds and self._is_near(seq)]
        if not ready:
            return []
        self._evaluate_late(step, [seq for seq, _ in ready])
        blocks = [(seq, len(seq.tokens) - 1, block_tokens(seq)) for seq, _ in ready]
        logits = self.rows.forward_rows(blocks, self.first)
        step.report_cost(forwards=1, rows=self.size * len(blocks))
        return [(seq, budget, rows) for (seq, budget), rows in zip(ready, logits, strict=True)]

    def _is_near(self, seq: Sequence) -> bool:
        return len(seq.tokens) - seq.evaluated <= self.size

    def _evaluate_late(self, step: DraftStep, seqs: list[Sequence]) -> None:
        """Evaluate tokens before the last one, where a rollback has left some."""
        late = [(s, s.evaluated, s.tokens[s.evaluated : -1]) for s in seqs if s.evaluated < len(s.tokens) - 1]
        if late:
            self.plain.forward(late)
            step.report_cost(forwards=1, rows=sum(len(tokens) for _, _, tokens in late))
