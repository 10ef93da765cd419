"""The Target that GGUF files and Hugging Face directories share: a decoder, its caches, and its rollback."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from spec_kernels.nn.cache import KVCache
from spec_kernels.nn.decoder import Decoder
from spec_kernels.nn.window import Stretch
from torch import Tensor

from spec_core import Batch, Checked, Compat, Needs, Sequence, Step, TargetInfo, hookimpl
from spec_core.sequence import Slot
from spec_core.step import Part
from spec_targets.runtime.config import Config
from spec_targets.runtime.masks import Masks
from spec_targets.runtime.weights import Weights

FIRST_ROWS = 512
"""Room of a new slot's cache."""


@attrs.define(eq=False)
class TorchTarget:
    """A dense or mixture-of-experts decoder. ``decoder`` is None when only metadata was read."""

    info: TargetInfo
    tokenizer: Any
    config: Config
    weights: Weights
    decoder: Decoder | None
    masks: Masks = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.masks = Masks(torch.device(self.info.device))

    # the Target protocol

    @torch.inference_mode()
    def forward(self, batch: Batch, needs: Needs) -> Checked:
        decoder = self.decoder
        x = self._embedded(batch)
        x, hidden = decoder.trunk(x, batch.positions, [self._stretch(part) for part in batch.parts], needs.hidden)
        x, rows = x[: len(batch.tokens)], self._logit_rows(batch, needs)
        if needs.final or needs.all_logits:
            final = decoder.norm(x)
            return Checked(decoder.logits(final[rows]), hidden, final if needs.final else None)
        return Checked(decoder.logits(decoder.norm(x[rows])), hidden)

    def _embedded(self, batch: Batch) -> Tensor:
        """[rows, D]; rows given as embeddings are put in place."""
        if not batch.embeds:
            return self.decoder.embed(batch.tokens)
        x = self.decoder.embed(batch.tokens.clamp_min(0)).clone()
        for row, embedding in batch.embeds.items():
            x[row] = embedding.to(x)
            if len(batch.tokens) == 1:
                x[:] = x[row]
        return x

    def tensor(self, name: str) -> Tensor:
        """A weight by its GGUF name, in the file's own row order."""
        if name == "output.weight" and self.weights.shape(name) is None:
            name = "token_embd.weight"
        if self.weights.shape(name) is None:
            raise KeyError(name)
        if self.decoder is not None and name == "token_embd.weight":
            return self.decoder.embedding
        return self.weights.load(name).to(dtype=self._dtype, device=self.info.device)

    def open(self, seq: Sequence, want: int) -> int:
        if seq.slot.state is None:
            seq.slot.state = self._cache(min(FIRST_ROWS, self.info.context + 1))
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
                end = step.part(seq).end
                seq.slot.state.compact(end, [end + i for i in verdict.path])

    # inside a forward

    @property
    def _dtype(self) -> torch.dtype:
        return getattr(torch, self.info.dtype)

    def _cache(self, rows: int) -> KVCache:
        c = self.config
        return KVCache(c.layers, c.kv_heads, c.head, c.head, rows, self._dtype, self.info.device)

    def _reserve(self, slot: Slot, rows: int) -> KVCache:
        """The slot's cache with room for so many rows: doubled when it runs out, so no step allocates."""
        cache: KVCache = slot.state
        if rows <= cache.length:
            return cache
        slot.state = cache.grown(max(rows, 2 * cache.length))
        return slot.state

    def _stretch(self, part: Part) -> Stretch:
        count = len(part.pending) + part.drafted
        cache = self._reserve(part.seq.slot, part.start + count)
        parents = None if part.draft is None else part.draft.parents
        mask = self.masks.chain(count) if parents is None else self.masks.tree(len(part.pending), parents)
        return Stretch(cache, part.row, count, part.start, mask)

    def _logit_rows(self, batch: Batch, needs: Needs) -> slice | list[int]:
        """Batch rows whose logits are wanted: of deciding parts the last pending row and the drafts."""
        if needs.all_logits:
            return slice(None)
        deciding = [p for p in batch.parts if p.decides]
        if len(batch.parts) == 1 and deciding:
            return slice(deciding[0].spec - 1, None)
        return [row for p in deciding for row in range(p.spec - 1, p.spec + p.drafted)]
