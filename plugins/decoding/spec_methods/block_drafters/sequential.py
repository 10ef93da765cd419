"""The sequential part of a block head: what a row of a block gains from the token drafted before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows, numbers
from spec_kernels.model.build import Builder
from spec_kernels.model.head import PREFIX, block_shape, shared_weights, spread, tokens_of
from spec_kernels.model.ops import Embed, Linear, Model, Pick, Tap
from torch import Tensor

from spec_core.toolkit import HeadFile


@attrs.frozen(eq=False)
class Conditional:
    """What follows a token in a row of a block: logits [V], and the head's own chance that its choice is accepted.

    chance: None where the head estimates none.
    """

    logits: Tensor
    chance: float | None = None


class Independent:
    """Rows as the block has them: each predicts its token alone."""

    sequential = False

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        """file: of the head. trunk: the executor of its layers."""
        self.head = file.head
        self.ids = tokens_of(self.head, trunk_device(trunk))

    def follow(self, rows: Sequence[tuple[int, Tensor, Tensor]]) -> list[Conditional]:
        """For each (token before, logits [Vd], state [D] after the last norm): what the row predicts after it."""
        logits = torch.stack([row for _, row, _ in rows])
        return [Conditional(row) for row in spread(logits, self.ids, self.head.vocab)]


class Markov(Independent):
    """Rows plus a matrix of low rank by the token before, W2 W1[token]. W1 is by the target's tokens.

    Its confidence head reads the row's state, and W1[token] if it was trained so.
    """

    sequential = True

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        super().__init__(file, trunk)
        source, head = shared_weights(file.source, trunk), self.head
        builder = Builder(block_shape(head), source)
        first = builder.matrix(PREFIX + "markov_w1.weight", (head.vocab, head.markov))
        second = builder.matrix(PREFIX + "markov_w2.weight", (head.draft_vocab, head.markov))
        picks = Pick("m", "m", "final"), Tap("m", "final"), Pick("m", "m", "logits")
        linear = Linear("m", ("logits",), (second,), (None,))
        self.successors = trunk.with_layers(Model((Embed("m", first), *picks, linear, Tap("logits", "logits"))), source)
        self.confidence = self.bias = None
        if head.confidence:
            self.confidence = builder.read(PREFIX + "conf_proj.weight", (1, head.confidence))[0].to(trunk_device(trunk))
            self.bias = float(builder.read(PREFIX + "conf_proj.bias", (1,)))

    def follow(self, rows: Sequence[tuple[int, Tensor, Tensor]]) -> list[Conditional]:
        tokens = numbers([token for token, _, _ in rows], trunk_device(self.successors))
        batch = ForwardBatch(
            tokens, torch.zeros_like(tokens), [SequenceRows(None, 0, len(rows), 0)], taps=("final", "logits")
        )
        outputs = self.successors.run(batch)
        logits = torch.stack([row for _, row, _ in rows]) + outputs["logits"]
        chances = self._chances(torch.stack([state for _, _, state in rows]).float(), outputs["final"].float())
        spread_rows = spread(logits, self.ids, self.head.vocab)
        return [Conditional(row, chance) for row, chance in zip(spread_rows, chances, strict=True)]

    def _chances(self, states: Tensor, successors: Tensor) -> Sequence[float | None]:
        """The head's own estimates for rows with these states [n, D] and first factors [n, r]."""
        if self.confidence is None:
            return [None] * len(states)
        width = states.shape[1]
        scores = states @ self.confidence[:width] + self.bias
        if len(self.confidence) > width:
            scores = scores + successors @ self.confidence[width:]
        return [float(chance) for chance in torch.sigmoid(scores).nan_to_num(0.0)]


class Selector(Independent):
    """The likeliest tokens of a row, each with a score of its own by the token before and the row's state.

    logit(b) + <successor[b], predecessor[a] * hidden state>, for the ``candidates`` likeliest b after a token a.
    """

    sequential = True

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        super().__init__(file, trunk)
        at = trunk_device(trunk)
        names = ("selector_predecessor.weight", "selector_successor.weight", "selector_hidden.weight")
        self.predecessor, self.successor, self.hidden = (file.source.load(name).float().to(at) for name in names)

    def follow(self, rows: Sequence[tuple[int, Tensor, Tensor]]) -> list[Conditional]:
        return [Conditional(self._scores(*row)) for row in rows]

    def _scores(self, token: int, row: Tensor, state: Tensor) -> Tensor:
        """[V]: scores of the candidates, -inf for all others."""
        logits = spread(row[None], self.ids, self.head.vocab)[0]
        best, candidates = logits.topk(min(self.head.candidates, len(row)))
        added = self.successor[candidates] @ (self.predecessor[token] * (self.hidden @ state.float()))
        return torch.full_like(logits, -torch.inf).index_copy_(0, candidates, best + added.to(best.dtype))


def trunk_device(executor: Any) -> Any:
    """The device of an executor; the processor's where it says none."""
    return getattr(executor, "device", "cpu")


def sequential_part(file: HeadFile, trunk: Any) -> Independent:
    """The sequential part that a head's file describes."""
    if file.head.selector:
        return Selector(file, trunk)
    return Markov(file, trunk) if file.head.markov else Independent(file, trunk)
