"""The Target: one call of the model for the rows of each sequence, and the rollback of its cache."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

import attrs
import torch
from torch import Tensor

from spec_core import Batch, Compat, Needs, Part, Rows, Sequence, Step, TargetInfo, TargetOutput, Tokenizer, hookimpl
from spec_engines.transformers.layout import Layout
from spec_engines.transformers.memory import Kinds, Memory
from spec_engines.transformers.quantised import matrix
from spec_engines.transformers.taps import Taps, tapped

EVERY, CHECKPOINTS_MAX = 256, 4
"""A model with recurrent layers keeps checkpoints at the end of a prompt and every EVERY tokens, the last ones only."""


@attrs.define(eq=False)
class TransformersTarget:
    """A causal language model of transformers. ``model`` is None when only metadata was read.

    Each sequence has a call of its own, with its own cache; two of them with recurrent layers, whose state is copied
    between pending rows and draft rows. Calls of several threads take turns.
    """

    info: TargetInfo
    tokenizer: Tokenizer | None
    model: Any
    layout: Layout
    kinds: Kinds
    _turns: Lock = attrs.field(factory=Lock, init=False)

    # the Target protocol

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        with self._turns, torch.inference_mode():
            calls = [call for part in batch.parts for call in self._part(part, batch, needs)]
        with torch.no_grad():  # copies outside of inference mode, so that plugins may change and train on them
            return TargetOutput(
                logits=torch.cat([logits for logits, _ in calls]),
                hidden={i: torch.cat([taps.hidden[i] for _, taps in calls]) for i in needs.hidden},
                final=torch.cat([taps.final for _, taps in calls]) if needs.final else None,
            )

    def _part(self, part: Part, batch: Batch, needs: Needs) -> list[tuple[Tensor, Taps]]:
        """Logits and hidden states of each call for a sequence's rows."""
        memory: Memory = part.seq.slot.state
        memory.cut(part.start)
        end = part.spec + part.drafted
        if not self.kinds.recurrent or not part.drafted:
            return [self._call(part, batch, range(part.row, end), needs)]
        pending = self._call(part, batch, range(part.row, part.spec), needs)
        memory.before = memory.copied()
        return [pending, self._call(part, batch, range(part.spec, end), needs)]

    def _call(self, part: Part, batch: Batch, rows: range, needs: Needs) -> tuple[Tensor, Taps]:
        """One call of the model for these rows of the batch, which belong to one sequence."""
        wanted = torch.tensor(_wanted(part, rows, needs), dtype=torch.int64, device=self.info.device)
        given = {row - rows.start: batch.embeds[row] for row in rows if row in batch.embeds} if batch.embeds else {}
        options = self._options(part, batch, rows)
        if self.layout.keeps:
            options["logits_to_keep"] = wanted
        options[self.layout.cache] = part.seq.slot.state.cache
        tokens = batch.tokens[rows.start : rows.stop].clamp_min(0)[None]
        with tapped(self.layout, needs, given) as taps:
            found = self.model(tokens, use_cache=True, **options)
        return (found.logits[0] if self.layout.keeps else found.logits[0, wanted]), taps

    def _options(self, part: Part, batch: Batch, rows: range) -> dict[str, Any]:
        """Positions, and the mask of a draft that branches."""
        options: dict[str, Any] = {}
        if self.layout.positions:
            options["position_ids"] = batch.positions[rows.start : rows.stop][None]
        if part.draft is not None and part.draft.parents is not None:
            options["attention_mask"] = self._mask(part)
        return options

    def _mask(self, part: Part) -> Tensor:
        """[1, 1, n, start + n], 0 where a row attends: to committed rows before it and to its ancestors."""
        pending, count = len(part.pending), len(part.pending) + part.drafted
        seen = torch.ones(count, part.start + count, dtype=torch.bool).tril(part.start)
        seen[pending:, part.end :] = False
        for j in range(part.drafted):
            seen[pending + j, [part.end + i for i in part.draft.ancestry(j)]] = True
        kind = getattr(torch, self.info.dtype)
        mask = torch.zeros(seen.shape, dtype=kind).masked_fill_(~seen, torch.finfo(kind).min)
        return mask[None, None].to(self.info.device)

    def tensor(self, name: str) -> Tensor:
        """``token_embd.weight`` or ``output.weight``, dequantised. Raises KeyError for any other."""
        return matrix(self.layout.module(name), name, self.info.width, getattr(torch, self.info.dtype))

    def open(self, seq: Sequence, want: int) -> int:
        """A model with recurrent layers continues only from checkpoints of its slot."""
        slot = seq.slot
        if slot.state is None:
            slot.state = Memory(self.model.config)
            return 0
        if not self.kinds.recurrent:
            return want
        start = max((p for p in slot.checkpoints if p <= want), default=0)
        self.restore(seq, start)
        return start

    def close(self, seq: Sequence) -> None:
        seq.slot.state = None

    def checkpoint(self, seq: Sequence) -> Any:
        """Copies of all recurrent tensors, None if there are none."""
        return seq.slot.state.copied() if self.kinds.recurrent else None

    def restore(self, seq: Sequence, position: int) -> None:
        """Rows of attention need no restoring: the next forward cuts them."""
        if self.kinds.recurrent:
            seq.slot.state.put(seq.slot.checkpoints[position] if position else None)

    # the plugin

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns=self.info.states)

    @hookimpl
    def rollback(self, step: Step) -> None:
        """Move a kept path of a tree together; restore recurrent state, unless the whole draft was kept."""
        for seq, verdict in step.verdicts.items():
            part, memory = step.part(seq), seq.slot.state
            if self.kinds.recurrent and len(verdict.path) < part.drafted:
                memory.put(memory.before)
                if verdict.path:
                    step.rewind(seq, part.end)
            elif verdict.path and verdict.path[-1] >= len(verdict.path):
                memory.compact(part.end, verdict.path)
            memory.before = None

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Make checkpoints, from which a later request with the same beginning can continue."""
        if self.kinds.recurrent:
            for seq in rows.spans:
                self._keep(seq)

    def _keep(self, seq: Sequence) -> None:
        kept, here = seq.slot.checkpoints, seq.evaluated
        if here == seq.prompt_len or here // EVERY > max(kept, default=0) // EVERY:
            kept[here] = self.checkpoint(seq)
        while len(kept) > CHECKPOINTS_MAX:
            del kept[min(kept)]


def _wanted(part: Part, rows: Iterable[int], needs: Needs) -> list[int]:
    """Which of these rows have logits, by their index among them."""
    first = part.row if needs.all_logits else part.spec - 1
    return [i for i, row in enumerate(rows) if row >= first] if part.decides or needs.all_logits else []
