"""Gemma 4's assistant drafts: a small decoder that attends to the target's own keys and values.

It stores no rows of its own, so that nothing is to be caught up, rolled back or copied. All tokens of a draft have one
position; after a drafted token its own state, projected to the target's width, takes the place of the target's.

Example: the target chose ``cat`` after ``the``. The first step reads (state at ``the``, ``cat``) and all rows up to
``the`` in the target's cache, and drafts ``sat``; the second reads (its own state, ``sat``) and the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence as Spans
from typing import Any, Literal

import attrs
from attrs.validators import ge, in_, le
from spec_kernels.drafting import executor_of, spread_logits
from torch import Tensor

from spec_core import Compat, DraftStep, Needs, Refusal, Sequence, Span, StashKey, Target, hookimpl, load
from spec_core.toolkit import (
    CacheReader,
    DraftHead,
    PairDrafter,
    PairState,
    SampleMode,
    cache_reader,
    draft_head,
    p_min_field,
    sample_field,
)
from spec_methods.assistant.layer import Layer


@attrs.define(eq=False)
class Assistant(PairDrafter):
    """Drafts with an assistant that was trained for the target."""

    file: str | None = attrs.field(default=None, metadata={"help": "the assistant; default: the target's own"})
    draft_max: int = attrs.field(
        default=4, validator=[ge(1), le(256)], metadata={"help": "max draft length", "off": 256}
    )
    p_min: float | None = p_min_field("stop when the draft's acceptance probability falls below this; 0.3")
    sample: SampleMode = sample_field()
    position: Literal["next", "last"] = attrs.field(
        default="next",
        validator=in_(("next", "last")),
        metadata={"help": "position of all drafted tokens: the last token's, or that of the last row in the cache"},
    )
    layer: Layer | None = attrs.field(default=None, init=False)
    reader: CacheReader | None = attrs.field(default=None, init=False)
    watch: Any = attrs.field(default=None, init=False)
    state: StashKey[PairState] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        head = draft_head(target, "assistant", self.file, load, trainable=False)
        if isinstance(head, Refusal):
            return Compat(refusals=[head])
        file: Any = head.file
        return Compat(
            shares=True,
            needs=Needs(final=True, weights={"token_embd.weight"}, cached_layers=file.head.blocks(target)),
            drafts=self.drafter.proposals,
            forwards=lambda k: k,
            load=lambda target: self._load(target, head),
            learns="length",
        )

    def _load(self, target: Target, head: DraftHead) -> None:
        self.reader = cache_reader(target)
        self.layer = Layer(head.file, executor_of(target), self.reader, target.info.layers, self.position == "next")

    @property
    def longest(self) -> int:
        return self.draft_max

    def hidden_states(self, spans: Spans[Span]) -> list[Tensor]:
        """The last state of each span: a draft reads no earlier one."""
        return [span.final[-1:].clone() for span in spans]

    def logits(self, rows: Tensor) -> Tensor:
        return spread_logits(rows, self.layer.ids, self.layer.vocab)

    def _ready(self, step: DraftStep, seq: Sequence, *place: Any) -> PairState | None:
        """The sequence's state, which reads the rows that its slot has now."""
        state = super()._ready(step, seq, *place)
        if state is not None:
            state.pairs.rows = self.reader.rows(seq, state.pairs.count)
        return state
