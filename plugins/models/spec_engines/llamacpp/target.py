"""The Target: calls of llama.cpp for the rows of each sequence, and the rollback of its memory."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import attrs
from torch import Tensor

from spec_core import (
    Batch,
    Compat,
    Needs,
    Part,
    RollbackStep,
    Rows,
    Sequence,
    TargetInfo,
    TargetOutput,
    Tokenizer,
    hookimpl,
)
from spec_core.toolkit import NextTokenLayer
from spec_engines.llamacpp.binding import Context
from spec_engines.llamacpp.memory import LlamaCppRows, join_rows, names_of
from spec_engines.llamacpp.paths import Paths

EVERY = 256
"""Tokens between two checkpoints of a model with recurrent layers, which also keeps one at the end of a prompt."""
CHECKPOINTS_MAX = 4
"""Max checkpoints of a sequence: the last ones are kept."""


@attrs.define(eq=False)
class LlamaCppTarget:
    """A model of llama.cpp. ``make`` is None when only metadata was read.

    Each sequence has a context of its own. Calls of several threads take turns.
    make: a new context, with True one whose hidden states can be read. weights: name -> tensor, for draft heads.
    """

    info: TargetInfo
    tokenizer: Tokenizer | None
    make: Callable[[bool], Context] | None
    weights: Callable[[str], Tensor]
    next_token_layer: NextTokenLayer | None = None
    _turns: Lock = attrs.field(factory=Lock, init=False)

    @property
    def recurrent(self) -> bool:
        return "recurrent" in self.info.states

    # the Target protocol

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        tokens = batch.tokens.tolist()
        with self._turns:
            rows_of_parts = [self._part(part, tokens, batch, needs) for part in batch.parts]
        return TargetOutput(
            logits=join_rows([logits for logits, _ in rows_of_parts]),
            hidden={i: join_rows([states[i] for _, states in rows_of_parts]) for i in needs.hidden},
            final=join_rows([states[self.info.layers + 1] for _, states in rows_of_parts]) if needs.final else None,
        )

    def _part(self, part: Part, tokens: list[int], batch: Batch, needs: Needs) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits and hidden states of one sequence. Hidden states are of rows with logits: all of them then."""
        memory: LlamaCppRows = part.seq.slot.state
        memory.cut(part.start)
        asked = {*needs.hidden, *((self.info.layers + 1,) if needs.final else ())}
        names = {i: names_of(i, self.info.layers) for i in asked}
        context = memory.tapped_context() if names else memory.context
        if context.taps is not None:
            context.taps.request(names)
        logits = self._rows(part, memory, tokens, batch, needs, everything=bool(names))
        return logits, context.taps.take() if names else {}

    def _rows(
        self, part: Part, rows: LlamaCppRows, tokens: list[int], batch: Batch, needs: Needs, everything: bool
    ) -> Tensor:
        """Logits of the rows that decide. everything: llama.cpp computes them for all rows."""
        end = part.first_draft_row + part.drafted
        count, pending = end - part.row, len(part.pending)
        before = 0 if needs.all_logits else pending - 1 if part.decides else count  # rows without logits
        outputs = [everything or row >= before for row in range(count)]
        embeds = {i: batch.embeds[part.row + i] for i in range(count) if part.row + i in batch.embeds}
        ids = tokens[part.row : end]
        rows.before = rows.tree = None
        if self.recurrent and part.drafted > rows.context.snapshots:
            evaluated = rows.evaluate(ids[:pending], embeds, outputs[:pending]).clone()
            rows.before = rows.context.copy_state()
            evaluated = join_rows([evaluated, rows.evaluate(ids[pending:], {}, outputs[pending:])])
        else:
            if part.draft is not None and part.draft.parents is not None:
                rows.tree = Paths.of(part.draft)
            evaluated = rows.evaluate(ids, embeds, outputs, rows.tree)
        return evaluated[before:] if everything else evaluated

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name. Raises KeyError if this project cannot read the architecture."""
        return self.weights(name)

    def open(self, seq: Sequence, want: int) -> int:
        """A model with recurrent layers continues only from checkpoints of its slot."""
        slot = seq.slot
        if slot.state is None:
            slot.state = LlamaCppRows(self.make)
            return 0
        if not self.recurrent:
            return want
        start = max((p for p in slot.checkpoints if p <= want), default=0)
        self.restore(seq, start)
        return start

    def close(self, seq: Sequence) -> None:
        seq.slot.state = None

    def checkpoint(self, seq: Sequence) -> bytes | None:
        """The recurrent state in llama.cpp's own format; None if there is none."""
        return seq.slot.state.context.copy_state() if self.recurrent else None

    def restore(self, seq: Sequence, position: int) -> None:
        if self.recurrent:
            seq.slot.state.restore(seq.slot.checkpoints[position] if position else None, position)

    # the plugin

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns=self.info.states)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        """Drop rejected rows; where recurrent state cannot be rolled back, evaluate accepted ones again."""
        for seq, verdict in step.verdicts.items():
            part, memory = step.part(seq), seq.slot.state
            if memory.before is not None and len(verdict.path) < part.drafted:
                memory.restore(memory.before, part.end)
                if verdict.path:
                    step.rewind(seq, part.end)
            elif self.recurrent:
                memory.cut(part.end + len(verdict.path))
            elif verdict.path and memory.tree is not None:
                memory.keep(part.end, len(verdict.path), memory.tree.behind(verdict.path))
            memory.before = None

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Make checkpoints, from which a later request with the same beginning can continue."""
        if self.recurrent:
            for seq in rows.spans:
                self._keep(seq)

    def _keep(self, seq: Sequence) -> None:
        kept, here = seq.slot.checkpoints, seq.evaluated
        if here == seq.prompt_len or here // EVERY > max(kept, default=0) // EVERY:
            kept[here] = self.checkpoint(seq)
        while len(kept) > CHECKPOINTS_MAX:
            del kept[min(kept)]
