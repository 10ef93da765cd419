"""A target without a cache, for texts of thousands of tokens: logits come from a random table."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spec_core.contract.batch import Batch, TargetOutput
from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.values import Compat, Needs, TargetInfo
from spec_core.hookspecs import hookimpl
from spec_core.testing.shown_rows import ToyReader
from spec_core.testing.toy import ToyTokenizer


class QuickTarget:
    """Logits after a token depend on that token and on its position modulo ``period``.

    :param sharpness: standard deviation of the logits.
    """

    def __init__(
        self,
        seed: int = 0,
        vocab: int = 48,
        width: int = 12,
        context: int = 8192,
        period: int = 7,
        sharpness: float = 2.0,
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        self.tokenizer = ToyTokenizer(vocab, frozenset())
        self.info = TargetInfo(
            name=f"quick-{seed}",
            vocab=vocab,
            width=width,
            layers=2,
            context=context,
            vocab_id=self.tokenizer.identity,
            family="quick",
        )
        self.period = period
        self.table = torch.randn(period, vocab, vocab, generator=random) * sharpness
        self._embed = torch.randn(vocab, width, generator=random)
        self.cache_reader = ToyReader(width, lambda seq: seq.tokens, self._show)

    probe_problem = None
    """Why it cannot evaluate rows that are no drafts: it can."""

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        tokens = batch.tokens.clamp_min(0)
        rows: list[int] = []
        for part in batch.parts:
            first = part.row if needs.all_logits else part.first_draft_row - 1
            rows += range(first, part.first_draft_row + part.branch_rows) if part.decides or needs.all_logits else ()
        x = self._embed[tokens]
        return TargetOutput(
            logits=self.table[batch.positions[rows] % self.period, tokens[rows]],
            hidden={i: x + i for i in needs.hidden},
            final=x * 2 if needs.final else None,
        )

    def _show(self, tokens: list[int], count: int) -> tuple[Tensor, Tensor]:
        """Embeddings [count, D] in place of keys and values."""
        rows = self._embed[torch.tensor(tokens[:count]).clamp_min(0)]
        return rows, rows

    def tensor(self, name: str) -> Tensor:
        """The embedding, as with tied matrices: no matrix produces these logits."""
        return {"token_embd.weight": self._embed, "output.weight": self._embed}[name]

    def open(self, seq: Sequence, want: int) -> int:
        seq.slot.state = True
        return want

    def copy(self, seq: Sequence, source: Slot, want: int) -> int:
        return self.open(seq, want)

    def close(self, seq: Sequence) -> None:
        seq.slot.state = None

    def checkpoint(self, seq: Sequence) -> Any:
        """None: there is no state."""

    def restore(self, seq: Sequence, position: int) -> None:
        """Do nothing: there is no state."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"attention"})
