"""One call of a model: rows of one sequence, or of several as a padded batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from spec_core import Batch, Needs, Part
from spec_engines.transformers.cache_rows import Shared
from spec_engines.transformers.layout import Layout
from spec_engines.transformers.masks import branches, mask
from spec_engines.transformers.taps import collect_taps

SHARED_ROWS = 32
"""Max rows of a sequence in a shared call. Prompts have more, and calls of their own: sharing saves nothing there."""
SHORT = 256
"""Max positions of sequences that share a call, whatever their lengths; a longer one shares with sequences of more
than half its length."""


@attrs.frozen(eq=False)
class Span:
    """Rows of one sequence. rows: of the batch. first: from which of them on, counted from 0, logits are wanted."""

    part: Part
    rows: range
    first: int

    @classmethod
    def of(cls, part: Part, rows: range, needs: Needs) -> Span:
        after = part.row if needs.all_logits else part.first_draft_row - 1 if part.decides else rows.stop
        return cls(part, rows, max(after - rows.start, 0))

    def cut(self, values: Tensor) -> Tensor:
        """The span's rows of a tensor of the batch."""
        return values[self.rows.start : self.rows.stop]


@attrs.frozen(eq=False)
class Found:
    """Outputs of a call for a span of n rows. logits: [n - first, V]. hidden: {i: [n, D]}. final: [n, D]."""

    logits: Tensor
    hidden: Mapping[int, Tensor]
    final: Tensor | None


def group_spans(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans by call: short ones of sequences that are about equally long share one."""
    calls: list[list[Span]] = []
    few = [span for span in spans if len(span.rows) <= SHARED_ROWS]
    for span in sorted(few, key=lambda span: span.part.start, reverse=True):  # the first of a call is its longest
        if calls and max(SHORT, 2 * span.part.start - 1) >= calls[-1][0].part.start:
            calls[-1].append(span)
        else:
            calls.append([span])
    return calls + [[span] for span in spans if len(span.rows) > SHARED_ROWS]


@attrs.frozen(eq=False)
class Caller:
    """A model, and the device and type of what it computes.

    decode: its compiled forward, for calls in which one sequence decodes, without a mask and without hidden states.
    """

    model: Any
    layout: Layout
    device: str
    dtype: torch.dtype
    decode: Any = None

    def call(self, spans: Sequence[Span], batch: Batch, needs: Needs) -> list[Found]:
        """One call of the model, and what it computed for each span."""
        count = max(len(span.rows) for span in spans)
        base = min(count - 1, *(span.first for span in spans)) if self.layout.keeps else 0
        options = self._options(spans, batch, count)
        if self.layout.keeps:
            options["logits_to_keep"] = _wanted_logits(base, count, needs)
        tokens = pad_rows([span.cut(batch.tokens) for span in spans]).clamp_min(0)
        embeds = _embeds_by_row(spans, batch)
        plain = not (needs.hidden or needs.final or embeds or base or "attention_mask" in options)
        model = self.decode if plain and self.decode is not None and _decodes(spans[0]) else self.model
        with collect_taps(self.layout, needs, embeds) as taps:
            logits = model(tokens, use_cache=True, **options).logits
        return [
            Found(
                logits[i, span.first - base : len(span.rows) - base],
                {at: stream[i, : len(span.rows)] for at, stream in taps.hidden.items()},
                None if taps.final is None else taps.final[i, : len(span.rows)],
            )
            for i, span in enumerate(spans)
        ]

    def _options(self, spans: Sequence[Span], batch: Batch, count: int) -> dict[str, Any]:
        """The cache, positions, and a mask if the model cannot derive it: of a batch, of a draft that branches."""
        caches = [span.part.seq.slot.state.cache for span in spans]
        options: dict[str, Any] = {self.layout.cache: batched_cache(caches, [len(span.rows) for span in spans])}
        if self.layout.positions:
            options["position_ids"] = pad_rows([span.cut(batch.positions) for span in spans])
        if len(spans) > 1 or branches(spans[0].part):
            options["attention_mask"] = mask([span.part for span in spans], count, self.dtype, self.device)
        return options


def _wanted_logits(base: int, count: int, needs: Needs) -> int | Tensor:
    """The rows from ``base`` on: by their number, or by index where hidden states of all rows are read.

    Given a number, layers that read the caches of others leave out all other rows.
    """
    return torch.arange(base, count) if needs.hidden or needs.final else count - base


def _decodes(span: Span) -> bool:
    """Whether it is a step after the prompt: one pending row and a draft."""
    return span.part.decides and span.part.start > 1 and len(span.part.pending) == 1


def pad_rows(rows: list[Tensor]) -> Tensor:
    """[B, n] a line for each sequence, zeros after the shorter ones."""
    return rows[0][None] if len(rows) == 1 else pad_sequence(rows, batch_first=True)


def batched_cache(caches: Sequence[Any], rows: Sequence[int]) -> Any:
    """The caches of the sequences of a call as one. rows: how many new ones each gets."""
    return caches[0] if len(caches) == 1 else Shared(caches, rows)


def _embeds_by_row(spans: Sequence[Span], batch: Batch) -> dict[tuple[int, int], Tensor]:
    """{(line, row): [D]} of rows that are given as embeddings."""
    if not batch.embeds:
        return {}
    return {
        (i, row - span.rows.start): batch.embeds[row]
        for i, span in enumerate(spans)
        for row in span.rows
        if row in batch.embeds
    }
