"""EAGLE-3 (Li et al., 2503.01840): a head drafts from hidden states of three depths of the target.

It reads pairs of such a feature and the token after it. Missing pairs of committed text are evaluated together with
the first drafted token, so k drafts cost k forwards of one block.

Example: the target chose ``cat`` after ``the``. The first forward reads (features of layers 2, 9 and 15 at ``the``,
``cat``) and drafts ``sat``; the second reads (its own state, ``sat``), as the target has no features there yet.
"""

from __future__ import annotations

from collections.abc import Sequence as Spans
from typing import Any

import attrs
import torch
from attrs.validators import ge, le
from spec_kernels.drafting import executor_of, target_weights
from torch import Tensor

from spec_core import Compat, Span, StashKey, Target, hookimpl, load
from spec_core.toolkit import (
    DraftHead,
    PairDrafter,
    PairState,
    SampleMode,
    draft_head,
    layer_ids_field,
    p_min_field,
    sample_field,
)
from spec_methods.eagle3.layer import Layer


@attrs.define(eq=False)
class Eagle3(PairDrafter):
    """Drafts with an EAGLE-3 head that was trained for the target."""

    file: str | None = attrs.field(default=None, metadata={"help": "file of the head; default: the target's own"})
    draft_max: int = attrs.field(
        default=5, validator=[ge(1), le(256)], metadata={"help": "max path length", "off": 256}
    )
    width: int = attrs.field(
        default=1,
        validator=[ge(1), le(64)],
        metadata={"help": "nodes evaluated at each depth, and max children of a token; 1 drafts chains", "off": 1},
    )
    nodes_max: int = attrs.field(
        default=24, validator=[ge(1), le(256)], metadata={"help": "max tokens of a tree", "off": 256}
    )
    p_min: float | None = p_min_field("stop when the draft's acceptance probability falls below this; 0.3")
    sample: SampleMode = sample_field()
    layer_ids: str = layer_ids_field()
    head: DraftHead | None = attrs.field(default=None, init=False)
    layer: Layer | None = attrs.field(default=None, init=False)
    watch: Any = attrs.field(default=None, init=False)
    state: StashKey[PairState] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        head = draft_head(target, "eagle3", self.file, load, self.layer_ids)
        if not isinstance(head, DraftHead):
            return Compat(refusals=[head])
        return Compat(
            shares=True,
            needs=attrs.evolve(
                head.needs,
                trees=self.width > 1 and target.info.trees,
                weights=target_weights(head.file.source, head.file.head.tied),
            ),
            drafts=self.drafter.tree_proposals,
            forwards=lambda k: k,
            load=lambda target: self._load(target, head),
            learns="tokens" if self.width > 1 else "length",
            notes=[head.note],
        )

    def _load(self, target: Target, head: DraftHead) -> None:
        self.head, self.layer = head, Layer(head.file, executor_of(target))

    @property
    def longest(self) -> int:
        return self.draft_max

    def hidden_states(self, spans: Spans[Span]) -> list[Tensor]:
        """Features for all sequences at once."""
        if len(spans) == 1:
            return [self.layer.features(self.head.states(spans[0]))]
        states = [torch.cat(parts) for parts in zip(*(self.head.states(span) for span in spans), strict=True)]
        return list(self.layer.features(states).split([len(span.tokens) for span in spans]))

    def later(self, span: Span) -> Span | None:
        return self.head.copy(span)

    def logits(self, rows: Tensor) -> Tensor:
        return self.layer.logits(rows)
