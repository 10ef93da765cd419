"""Targets whose optional parts break one promise each, with a healthy one for every part."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import torch

from spec_core import Draft, Part
from spec_core.contract.held import HeldDrafts, check_held
from spec_core.contract.splice import explicit_parents
from spec_core.testing import ToyTarget
from spec_core.toolkit import forward
from tests.kit.broken_targets import Healthy


class Input:
    """An operation of a layer."""


class Tap(Input):
    """Another one."""


class Half:
    """A source with one tensor."""

    def shape(self, name):
        return (256, 32) if name in ("half.weight", "token_embd.weight") else None


class Further:
    """A layer that predicts one token further."""

    problem, names, source, heads, deeper = None, frozenset({"half.weight"}), Half(), (8, 4), None

    def operations(self, source):
        return [Input(), Tap()]

    def rotation(self):
        return torch.ones(2), 1.0


class Executor:
    """Runs further layers. target: the one whose embedding it has."""

    def __init__(self, target) -> None:
        self.target, self.source = target, self

    def shape(self, name):
        return tuple(self.target.tensor(name).shape)

    def with_layers(self, model, source):
        """Not called by the kit."""


class Texts:
    """Texts of the target."""

    def texts(self):
        return ["a text"]

    def prompts(self, count):
        return ["a prompt"] * count


class HasParts(Healthy):
    """Healthy: every optional part."""

    def __init__(self) -> None:
        super().__init__()
        self.next_token_layer, self.layer_executor, self.training_texts = Further(), Executor(self), Texts()


class RunsParts(ToyTarget):
    """Healthy: its only block is all of it."""

    partial_problem = None

    def __init__(self) -> None:
        super().__init__(context=96, recurrent=False)

    def partial_forward(self, blocks, window=0):
        return WholePart(self)


@attrs.frozen(eq=False)
class WholePart:
    """All blocks of a target."""

    target: ToyTarget

    def forward(self, rows):
        if any(start < seq.evaluated for seq, start, _ in rows):
            raise ValueError("these rows are evaluated")
        return self.run(rows)

    def forward_rows(self, rows, first=0):
        return [torch.cat(list(map(self.run, self.beginnings(row, first)))) for row in rows]

    def beginnings(self, row, first):
        """The row's tokens up to each from ``first`` on."""
        seq, start, tokens = row
        return [[(seq, start, tokens[: i + 1])] for i in range(first, len(tokens))]

    def run(self, rows):
        parts = [Part(seq, start, tokens, decides=True) for seq, start, tokens in rows]
        return forward(self.target, parts).output.logits


class GivesAllRows(RunsParts):
    """Gives rows before the first one as well."""

    def partial_forward(self, blocks, window=0):
        part = WholePart(self)
        return SimpleNamespace(forward=part.forward, forward_rows=lambda rows, first=0: part.forward_rows(rows))


class WritesEvaluatedRows(RunsParts):
    """Evaluates the row before the first one again, with the first one's token."""

    def partial_forward(self, blocks, window=0):
        part = WholePart(self)
        return SimpleNamespace(
            forward=lambda rows: [part.run([(s, at - 1, [t[0]]) for s, at, t in rows]), part.forward(rows)][1]
        )


class HoldsDrafts(ToyTarget):
    """Healthy: draft rows stay for a forward that follows them."""

    def __init__(self) -> None:
        super().__init__(context=96, recurrent=False)


class LosesThePath(HoldsDrafts):
    """Lets a draft that follows a draft row of the last forward follow committed text."""

    def forward(self, batch, needs):
        for part in batch.parts:
            if part.held:
                check_held(part.seq.slot.state.drafts, part)
                parents = [p if p >= part.held else -1 for p in explicit_parents(part.draft)]
                part.draft = Draft(part.draft.ids, parents=parents)
                part.seq.slot.state.drafts = HeldDrafts(part.start, part.draft)
        return super().forward(batch, needs)


class FollowsVoidRows(HoldsDrafts):
    """Does not look what became of the rows that a forward follows."""

    def forward(self, batch, needs):
        for part in batch.parts:
            if not part.pending:
                part.seq.slot.state.drafts = HeldDrafts(part.start, part.draft)
        return super().forward(batch, needs)


class LosesThePathOfProbes(HoldsDrafts):
    """Lets every probe row follow committed text."""

    def forward(self, batch, needs):
        for part in batch.parts:
            part.probes = [attrs.evolve(piece, links=(-1,) * len(piece.ids)) for piece in part.probes]
        return super().forward(batch, needs)


class NamesAMissingTensor(HasParts):
    """Its layer has a tensor that its source lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.next_token_layer.names = frozenset({"half.weight", "other.weight"})


class RotatesTooFewPairs(HasParts):
    """Half of the rotated dimensions have an angle."""

    def __init__(self) -> None:
        super().__init__()
        self.next_token_layer.rotation = lambda: (torch.ones(1), 1.0)


class LendsAnotherEmbedding(HasParts):
    """Its executor has an embedding of another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_executor.shape = lambda name: (1, 1)


class ShowsOneRowTooFew(HasParts):
    """Its reader leaves the last row out."""

    def __init__(self) -> None:
        super().__init__()
        reader = self.cache_reader
        self.cache_reader = attrs.evolve(reader, show=lambda memory, count: reader.show(memory, count - 1))


class GivesMorePrompts(HasParts):
    """Has one prompt more than were requested."""

    def __init__(self) -> None:
        super().__init__()
        self.training_texts.prompts = lambda count: ["a prompt"] * (count + 1)
