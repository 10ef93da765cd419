"""What a target says of the texts that it writes, taken down while it writes them: no text is evaluated twice."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from spec_core import Compat, Rows, Sequence, StashKey, hookimpl
from spec_train.lessons import Lesson, Likely, Teacher


@attrs.define(eq=False)
class Notes:
    """Of one slot: hidden states of its rows, and {position: distribution of the token after it} of those that decided.

    What belongs to rows that are reused stays.
    """

    features: list[Tensor] = attrs.field(factory=list)
    likely: dict[int, Likely] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Listener:
    """A plugin that drafts nothing."""

    teacher: Teacher
    notes: StashKey[Notes] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=self.teacher.needs)

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, span in rows.by_sequence():
            notes = seq.stash.setdefault(self.notes, Notes())
            notes.features[span.start :] = self.teacher.features(span.hidden, span.final)
            part = rows.step.part(seq)
            if part.decides:
                notes.likely[span.end - 1] = Likely.of(rows.step.output.logits[part.at : part.at + 1])

    def lesson(self, seq: Sequence, start: int) -> Lesson:
        """Of a sequence that has just ended; its last token was never evaluated and is left out. start: of its answer.

        To be asked for before the next step, which may give the slot to another sequence.
        """
        notes, rows = seq.stash[self.notes], seq.delivered
        likely = Likely.joined([notes.likely[i] for i in range(start - 1, rows)])
        tokens = torch.tensor(seq.tokens[:rows], device=notes.features[0].device)
        return Lesson(tokens, torch.stack(notes.features[:rows]), likely.behind(start - 1), start)
