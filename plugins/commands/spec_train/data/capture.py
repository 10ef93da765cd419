"""Captures hidden states and distributions while the target generates, so that no text is evaluated twice."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from spec_core import Compat, Rows, Sequence, StashKey, hookimpl
from spec_train.data.samples import Sample, Teacher, TopK


@attrs.define(eq=False)
class Captured:
    """Data of one slot: the hidden states of its rows, and {position: distribution of the next token} of the rows whose
    logits were computed.

    Data of a reused prefix are kept.
    """

    features: list[Tensor] = attrs.field(factory=list)
    top_k: dict[int, TopK] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Capture:
    """A plugin that drafts nothing."""

    teacher: Teacher
    key: StashKey[Captured] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=self.teacher.needs)

    @hookimpl
    def process(self, rows: Rows) -> None:
        assert rows.step.output is not None
        for seq, span in rows.by_sequence():
            captured = seq.stash.setdefault(self.key, Captured())
            final = span.final if self.teacher.needs.final else None
            captured.features[span.start :] = self.teacher.features(span.hidden, final)
            part = rows.step.part(seq)
            if part.decides:
                captured.top_k[span.end - 1] = TopK.of(rows.step.output.logits[part.logits_row : part.logits_row + 1])

    def sample(self, seq: Sequence, start: int) -> Sample:
        """Sample of a sequence that has just finished, without its last token, which was not evaluated.

        start: of its answer. Must be called before the next step, which may give the slot to another sequence.
        """
        captured, rows = seq.stash[self.key], seq.delivered
        top_k = TopK.concat([captured.top_k[i] for i in range(start - 1, rows)])
        tokens = torch.tensor(seq.tokens[:rows], device=captured.features[0].device)
        return Sample(tokens, torch.stack(captured.features[:rows]), top_k.pad_front(start - 1), start)
