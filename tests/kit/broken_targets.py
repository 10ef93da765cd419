"""Targets that break one promise each; the toy target is the healthy one."""

from __future__ import annotations

import attrs
import torch

from spec_core import Compat, Draft, hookimpl
from spec_core.testing import ToyTarget


class Healthy(ToyTarget):
    """The toy target with a short context."""

    def __init__(self) -> None:
        super().__init__(context=96)


class LooksAtItsNeighbours(Healthy):
    """Scales logits by how many rows a forward has."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, logits=output.logits * (1 + 1e-9 * len(batch.tokens)))


class RoundsDifferentlyInABatch(Healthy):
    """Differs in the last bits only, where it has many rows, and declares equal bits."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, logits=output.logits * (1 + 1e-15 * (len(batch.tokens) > 8)))


class ForgetsAtBorders(Healthy):
    """Loses the last row of a chunk when the next one comes."""

    def forward(self, batch, needs):
        for part in batch.parts:
            if part.start and len(part.pending) > 1:
                part.seq.slot.state.values[part.start - 1] *= 0
        return super().forward(batch, needs)


class TakesTreesForChains(Healthy):
    """Lets every draft follow the one before it."""

    def forward(self, batch, needs):
        for part in batch.parts:
            if part.draft is not None:
                part.draft = Draft(part.draft.ids)
        return super().forward(batch, needs)


class CommitsDrafts(Healthy):
    """Leaves the recurrent state after the last draft instead of the last pending row."""

    def forward(self, batch, needs):
        output = super().forward(batch, attrs.evolve(needs, trace="states"))
        for part in batch.parts:
            if part.drafted:
                part.seq.slot.state.recurrent = output.trace[part.first_draft_row + part.drafted - 1]
        return output


class LeavesRowsInPlace(Healthy):
    """Cuts its rows to the number of kept drafts, wherever in the tree they are."""

    @hookimpl
    def rollback(self, step) -> None:
        for seq, verdict in step.verdicts.items():
            for rows in (seq.slot.state.keys, seq.slot.state.values):
                del rows[step.part(seq).end + len(verdict.path) :]


class IsWrongBehindDrafts(Healthy):
    """Computes the rows of drafts a little differently."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        for part in batch.parts:
            if part.drafted:
                output.logits[part.logits_row + 1 : part.logits_row + 1 + part.drafted].neg_()
        return output


class OpensAnywhere(Healthy):
    """Cuts attention rows anywhere, and leaves the recurrent state as it is."""

    def open(self, seq, want):
        if seq.slot.state is None:
            return super().open(seq, want)
        return self._truncate(seq.slot.state, want)


class RestoresNothing(Healthy):
    """Gives its own memory away as a checkpoint: it goes on changing."""

    def checkpoint(self, seq):
        return seq.slot.state

    def restore(self, seq, position):
        seq.slot.state.recurrent = seq.slot.checkpoints[position].recurrent


class ShowsTheLastRow(Healthy):
    """Gives hidden states of the last row for those of every row."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, hidden={i: h[-1:].expand_as(h) for i, h in output.hidden.items()})


class IgnoresEmbeddings(Healthy):
    """Looks -1 up like a token."""

    def forward(self, batch, needs):
        return super().forward(attrs.evolve(batch, embeds={}), needs)


class GivesItBeforeTheNorm(Healthy):
    """Gives the last stream as the one after the final norm."""

    def forward(self, batch, needs):
        output = super().forward(batch, attrs.evolve(needs, hidden={*needs.hidden, 2}))
        return attrs.evolve(output, final=output.hidden[2] if needs.final else None)


class RoundsWhenWatched(Healthy):
    """Computes in float32 where hidden states are asked for."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        return attrs.evolve(output, logits=output.logits.float().double()) if needs.hidden else output


class AnswersEverybody(Healthy):
    """Gives a row for parts that decide nothing."""

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        more = sum(not part.decides for part in batch.parts)
        return attrs.evolve(output, logits=torch.cat([output.logits, output.logits[:more]]))


class HasEveryTensor(Healthy):
    """Gives nothing for a name that it does not know."""

    def tensor(self, name):
        try:
            return super().tensor(name)
        except KeyError:
            return None


class DropsTheEnd(Healthy):
    """Streams pieces one token late, and forgets the last."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer.stream = Late


class Late:
    """Gives each piece with the next token."""

    held = ""

    def put(self, token):
        piece, self.held = self.held, chr(32 + token)
        return piece

    def end(self):
        return ""


class DropsTheSpace(Healthy):
    """Decodes every text, also one that follows a prompt, without its first space."""

    def __init__(self) -> None:
        super().__init__()
        decode = self.tokenizer.decode
        self.tokenizer.decode = lambda ids: decode(ids).removeprefix(" ")
        self.tokenizer.stream = Stripped


class Stripped:
    """Drops the space that is its first character."""

    begun = False

    def put(self, token):
        text = chr(32 + token)
        text, self.begun = text if self.begun else text.removeprefix(" "), True
        return text

    def end(self):
        return ""


class HasAPool(Healthy):
    """Hands memory that was given back out again, as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = []

    def close(self, seq):
        self.pool.append(seq.slot.state)

    def open(self, seq, want):
        if seq.slot.state is None and self.pool:
            seq.slot.state = self.pool.pop()
            return 0
        return super().open(seq, want)


class NamesAnotherVocabulary(Healthy):
    """Says that it has more tokens than its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.info = attrs.evolve(self.info, vocab=50)


class EndsEarly(Healthy):
    """Has a table of positions that is a little shorter than its context."""

    def forward(self, batch, needs):
        assert batch.positions.max() < self.info.context - 2, "position outside of the table"
        return super().forward(batch, needs)


class GivesTextForBytes(Healthy):
    """Has a tokenizer whose tokens are made of text, not of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer.token_bytes = lambda token: self.tokenizer.decode([token])


class OwnsNothing(Healthy):
    """Does not own its attention rows."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat()


class StartsAnew(Healthy):
    """Never continues on the rows it has."""

    def open(self, seq, want):
        return super().open(seq, 0)


class CopiesNothing(Healthy):
    """Lets two sequences write into the same rows."""

    def copy(self, seq, source, want):
        start = super().copy(seq, source, want)
        seq.slot.state.keys, seq.slot.state.values = source.state.keys, source.state.values
        return start


class Raises(Healthy):
    """Raises when there are drafts."""

    def forward(self, batch, needs):
        assert not any(part.drafted for part in batch.parts), "not expected"
        return super().forward(batch, needs)
