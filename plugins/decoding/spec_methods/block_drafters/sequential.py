"""The sequential part of a block head: what a row of a block gains from the token drafted before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import attrs
import torch
from spec_kernels.drafting import (
    PREFIX,
    Add,
    Builder,
    Clusters,
    Concat,
    Drafted,
    DraftOptions,
    Embed,
    ForwardBatch,
    Gate,
    Input,
    LatticeScores,
    Linear,
    Model,
    Op,
    Pick,
    SequenceRows,
    Tap,
    block_shape,
    embed_codes,
    feature_ops,
    message_ops,
    numbers,
    output_matrix,
    pack_scores,
    rows_at,
    scores_after,
    shared_weights,
    sigmoid,
    spread_logits,
    tokens_of,
)
from torch import Tensor

from spec_core.toolkit import DraftLimits, HeadFile


@attrs.frozen(eq=False)
class Conditional:
    """What follows a token in a row: logits [V], and the head's own chance that its choice is accepted, if any."""

    logits: Tensor
    chance: float | None = None


class SequentialPart:
    """What makes logits of a block's rows, from the left. sequential: a row depends on the token drafted before it."""

    sequential = True

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        """file: of the head. trunk: the executor of its layers."""
        self.head, self.device = file.head, getattr(trunk, "device", "cpu")
        self.ids = tokens_of(self.head, self.device)

    def read_block(self, rows: Tensor, states: Tensor, feature: Tensor | None) -> Tensor:
        """States [n, *] that ``follow`` reads of a block with these logits [n, Vd] and states [n, D], once for a block.

        feature: [D] of the last committed position, where the head reads it.
        """
        return states

    def follow(self, rows: Sequence[tuple[int, Tensor, Tensor]]) -> list[Conditional]:
        """For each (token before, logits [Vd], state [D] after the last norm): what the row predicts after it."""
        raise NotImplementedError


class Independent(SequentialPart):
    """Rows as the block has them: each predicts its token alone."""

    sequential = False
    reads_states: ClassVar[bool] = False
    """Whether a row is made of its state as well."""
    sure: str | None = None
    """The output whose sigmoid is the head's own chance."""

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        super().__init__(file, trunk)
        source = shared_weights(file.source, trunk)
        operations = tuple(self._operations(Builder(block_shape(self.head), source)))
        self.executor = trunk.with_layers(Model(operations), source)

    def _operations(self, builder: Builder) -> Iterator[Op]:
        row = Input("row", self.head.draft_vocab)
        yield from (row, Pick("row", "row", "final"), Pick("row", "row", "logits"), Tap("row", "logits"))

    def follow(self, rows: Sequence[tuple[int, Tensor, Tensor]]) -> list[Conditional]:
        tokens, logits, states = zip(*rows, strict=True)
        outputs = self.executor.run(self._batch(tokens, self._inputs(torch.stack(logits), torch.stack(states))))
        after = spread_logits(outputs["logits"], self.ids, self.head.vocab)
        scores = [None] * len(rows) if self.sure is None else outputs[self.sure][:, 0].tolist()
        return [Conditional(row, None if s is None else sigmoid(s)) for row, s in zip(after, scores, strict=True)]

    def chooses(self, sampling: Any) -> bool:
        """Whether ``draft`` may draw with this sampling."""
        return bool(self.executor.chooses(sampling, reads=True))

    def draft(
        self, blocks: Sequence[tuple[int, Tensor, Tensor]], limits: Sequence[DraftLimits], keep: bool
    ) -> list[Drafted]:
        """A chain of every block, in one call. blocks: (token before, logits [n, Vd], states [n, D]).

        keep: with the rows [n, V] that tokens were chosen from.
        """
        read = [self._inputs(logits, states) for _, logits, states in blocks]
        batch = self._batch([token for token, _, _ in blocks], rows_at([(of, 0) for of in read]))
        if self.sure is not None:
            limits = [attrs.evolve(of, trust=1.0) for of in limits]
        options = DraftOptions(None, self.ids, keep, read, self.sure)
        chains = self.executor.draft(batch, limits, options).found
        return [replace(c, rows=spread_logits(c.rows, self.ids, self.head.vocab)) for c in chains] if keep else chains

    def _inputs(self, rows: Tensor, states: Tensor) -> dict[str, Tensor]:
        return {"row": rows, "state": states} if self.sure is not None or self.reads_states else {"row": rows}

    def _batch(self, tokens: Sequence[int], inputs: dict[str, Tensor]) -> ForwardBatch:
        at, rows = numbers(tokens, self.device), list(range(len(tokens)))
        sequences, taps = [SequenceRows(None, i, 1, 0) for i in rows], tuple(filter(None, ("logits", self.sure)))
        return ForwardBatch(at, torch.zeros_like(at), sequences, inputs=inputs, logits=rows, final=rows, taps=taps)


class Markov(Independent):
    """Rows plus a matrix of low rank by the token before, W2 W1[token]. W1 is by the target's tokens.

    Its confidence head reads the row's state, and W1[token] if it was trained so.
    """

    sequential = True

    def _operations(self, builder: Builder) -> Iterator[Op]:
        head = self.head
        yield Embed("m", builder.matrix(PREFIX + "markov_w1.weight", (head.vocab, head.markov)))
        yield from (Input("row", head.draft_vocab), Pick("m", "m", "final"), Pick("m", "m", "logits"))
        if head.confidence:
            self.sure = "confidence"
            yield from _confidence(builder, head)
        second = builder.matrix(PREFIX + "markov_w2.weight", (head.draft_vocab, head.markov))
        yield Linear("m", ("logits",), (second,), (None,), "row")
        yield Tap("logits", "logits")


def _confidence(builder: Builder, head: Any) -> Iterator[Op]:
    """Operations from the state, and W1[token] if it is read, to the score of the head's own chance."""
    weight = replace(builder.matrix(PREFIX + "conf_proj.weight", (1, head.confidence)), wide=True)
    yield Input("state", head.width)
    yield Concat(("state", "m") if head.confidence > head.width else ("state",), "facts")
    yield Linear("facts", ("confidence",), (weight,), (builder.read(PREFIX + "conf_proj.bias", (1,)),))
    yield Tap("confidence", "confidence")


class Selector(Independent):
    """The most likely tokens of a row, each with a score of its own by the token before and the row's state.

    logit(b) + <successor[b], predecessor[a] * hidden state>, for the ``candidates`` most likely b after a token a.
    """

    sequential = True
    reads_states = True

    def _operations(self, builder: Builder) -> Iterator[Op]:
        head, size = self.head, (self.head.vocab, self.head.selector)
        predecessor, successor, hidden = (
            replace(builder.matrix(f"{PREFIX}selector_{name}.weight", shape), wide=True)
            for name, shape in (("predecessor", size), ("successor", size), ("hidden", (size[1], head.width)))
        )
        if head.d2t is not None:
            rows = builder.weight(PREFIX + "selector_successor.weight", head.d2t.cpu())
            successor = replace(rows, wide=True)
        yield Embed("z", predecessor)
        yield from (Input("row", head.draft_vocab), Input("state", head.width))
        yield from (Pick("z", "z", "final"), Pick("z", "z", "logits"))
        yield Linear("state", ("turned",), (hidden,), (None,))
        yield Gate("z", "turned", "z", "identity")
        yield Clusters("z", "row", "added", successor, min(head.candidates, head.draft_vocab))
        yield Add("row", "added", "logits")
        yield Tap("logits", "logits")


class Transfer(Independent):
    """The most likely tokens of a row, by its state after a message of the token before instead of the row before's
    (DSpine)."""

    sequential = True
    reads_states = True

    def _operations(self, builder: Builder) -> Iterator[Op]:
        head, block = self.head, builder.at(f"{PREFIX}blk.{self.head.layers - 1}.", 0)
        yield embed_codes(builder, head, "code")
        yield from (Input("row", head.draft_vocab), Input("state", head.width))
        yield from (Pick("code", "code", "final"), Pick("code", "code", "logits"))
        yield from feature_ops(block, head, "state")
        yield from message_ops(block, builder, head, "state", "code")
        yield builder.norm("state", "h", PREFIX + "output_norm.weight")
        output = output_matrix(builder, head.tied)
        yield Clusters("h", "row", "logits", output, min(head.candidates, head.draft_vocab))
        yield Tap("logits", "logits")


class Paths(SequentialPart):
    """Candidates of a row, scored after each candidate of the row before (LiLiCorr)."""

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        super().__init__(file, trunk)
        self.lattice = LatticeScores(file, trunk)

    def read_block(self, rows: Tensor, states: Tensor, feature: Tensor | None) -> Tensor:
        assert feature is not None
        return pack_scores(*self.lattice.score(rows, states, feature))

    def follow(self, rows: Sequence[tuple[int, Tensor, Tensor]]) -> list[Conditional]:
        return [Conditional(scores_after(token, state, self.head.vocab)) for token, _, state in rows]


def sequential_part(file: HeadFile, trunk: Any) -> SequentialPart:
    """The sequential part that a head's file describes."""
    head = file.head
    if head.lattice is not None:
        return Paths(file, trunk)
    kinds = {Selector: head.selector, Transfer: head.transfer, Markov: head.markov}
    return next((kind for kind, sizes in kinds.items() if sizes), Independent)(file, trunk)
