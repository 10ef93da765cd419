"""The Target that GGUF files and Hugging Face directories share: a decoder, its caches, and its rollback."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import Tensor

from spec_core import Batch, Checked, Compat, Needs, Sequence, Step, TargetInfo, hookimpl
from spec_core.step import Part
from spec_kernels.nn.cache import KvCache
from spec_kernels.nn.decoder import Decoder
from spec_kernels.nn.frame import Frame, Place
from spec_kernels.nn.masks import tree_mask
from spec_kernels.ops.attention import causal_mask
from spec_targets.runtime.config import Config
from spec_targets.runtime.weights import Weights


@attrs.define(eq=False)
class TorchTarget:
    """A dense or mixture-of-experts decoder. ``decoder`` is None when only metadata was read."""

    info: TargetInfo
    tokenizer: Any
    config: Config
    weights: Weights
    decoder: Decoder | None
    inverse: Tensor
    attention_scale: float

    # the Target protocol

    @torch.inference_mode()
    def forward(self, batch: Batch, needs: Needs) -> Checked:
        decoder = self.decoder
        x = decoder.embed[batch.tokens.clamp_min(0)] if batch.embeds else decoder.embed[batch.tokens]
        for row, embedding in batch.embeds.items():
            x[row] = embedding.to(x)
        x, hidden = decoder.trunk(x, self._frame(batch), needs.hidden)
        rows = self._logit_rows(batch, needs)
        if needs.final or needs.all_logits:
            final = decoder.norm(x)
            return Checked(decoder.logits(final[rows]), hidden, final if needs.final else None)
        return Checked(decoder.logits(decoder.norm(x[rows])), hidden)

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name, in the file's own row order."""
        if name == "output.weight" and self.weights.shape(name) is None:
            name = "token_embd.weight"
        if self.weights.shape(name) is None:
            raise KeyError(name)
        if self.decoder is not None and name == "token_embd.weight":
            return self.decoder.embed
        return self.weights.load(name).to(dtype=self._dtype, device=self.info.device)

    def open(self, seq: Sequence, want: int) -> int:
        if seq.slot.state is None:
            c = self.config
            seq.slot.state = KvCache(c.layers, c.kv_heads, c.head, self._dtype, torch.device(self.info.device))
            return 0
        return want

    def close(self, seq: Sequence) -> None:
        seq.slot.state = None

    def checkpoint(self, seq: Sequence) -> None:
        """Nothing here is recurrent: rows before any position can be kept as they are."""

    def restore(self, seq: Sequence, position: int) -> None:
        """Nothing to put back; the next forward overwrites rows from its start on."""

    # the plugin

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"attention"})

    @hookimpl
    def rollback(self, step: Step) -> None:
        """A kept chain lies where it should; a kept path of a tree is moved together."""
        for seq, verdict in step.verdicts.items():
            if verdict.path:
                seq.slot.state.keep(step.part(seq).end, verdict.path)

    # inside a forward

    @property
    def _dtype(self) -> torch.dtype:
        return getattr(torch, self.info.dtype)

    def _frame(self, batch: Batch) -> Frame:
        angle = batch.positions[:, None] * self.inverse
        cos, sin = angle.cos() * self.attention_scale, angle.sin() * self.attention_scale
        return Frame(
            cos=torch.cat([cos, cos], -1)[:, None].to(self._dtype),
            sin=torch.cat([-sin, sin], -1)[:, None].to(self._dtype),
            places=tuple(self._place(part) for part in batch.parts),
        )

    def _place(self, part: Part) -> Place:
        count = len(part.pending) + part.drafted
        cache = part.seq.slot.state
        cache.reserve(part.start + count)
        rows = slice(part.row, part.row + count)
        if count == 1:
            return Place(cache, rows, part.start, count, None)
        chain = part.draft is None or part.draft.parents is None
        if chain and part.start == 0:
            return Place(cache, rows, part.start, count, None, causal=True)
        mask = (
            causal_mask(count, part.start + count)
            if chain
            else tree_mask(part.start, len(part.pending), part.draft.parents)
        )
        group = self.config.heads // self.config.kv_heads
        return Place(cache, rows, part.start, count, mask.repeat(group, 1).to(self.info.device))

    def _logit_rows(self, batch: Batch, needs: Needs) -> slice | list[int]:
        """Batch rows whose logits are wanted: of deciding parts the last pending row and the drafts."""
        if needs.all_logits:
            return slice(None)
        deciding = [p for p in batch.parts if p.decides]
        if len(batch.parts) == 1 and deciding:
            return slice(deciding[0].spec - 1, None)
        return [row for p in deciding for row in range(p.spec - 1, p.spec + p.drafted)]
