"""EAGLE-3 (Li et al., 2503.01840): a head drafts from hidden states of three depths of the target.

It reads pairs of such a feature and the token after it. What it lacks of the committed pairs is evaluated together with
the first drafted token, so k drafts cost k forwards of one block.
"""

from __future__ import annotations

from collections.abc import Sequence as Spans
from typing import Any, Literal

import attrs
import torch
from attrs.validators import ge, le
from torch import Tensor

from spec_core import Compat, Needs, Refusal, Span, StashKey, Target, hookimpl, load
from spec_core.toolkit import PairDrafter, PairState, SampleMode
from spec_methods.eagle3.layer import Layer

Reading = Literal["auto", "inputs", "outputs"]


@attrs.define(eq=False)
class Eagle3(PairDrafter):
    """Drafts with an EAGLE-3 head that was trained for the target."""

    file: str | None = attrs.field(default=None, metadata={"help": "the head; the target may know its own"})
    depth: int = attrs.field(default=5, validator=[ge(1), le(256)], metadata={"help": "longest path", "off": 256})
    width: int = attrs.field(
        default=1,
        validator=[ge(1), le(64)],
        metadata={"help": "nodes evaluated at each depth, and most tokens after one; 1 drafts chains", "off": 1},
    )
    nodes_max: int = attrs.field(
        default=24, validator=[ge(1), le(256)], metadata={"help": "most tokens of a tree", "off": 256}
    )
    p_min: float = attrs.field(
        default=0.3,
        validator=[ge(0.0), le(1.0)],
        metadata={"help": "stop where the draft survives less likely", "off": 0.0},
    )
    sample: SampleMode = attrs.field(
        default="auto", metadata={"help": "sampled: by the request's own sampling and noise; auto: where it samples"}
    )
    layer_ids: Reading = attrs.field(
        default="auto",
        metadata={
            "help": "what the file's layer ids mean: layers entered (inputs) or left (outputs); auto: by its kind"
        },
    )
    layer: Layer | None = attrs.field(default=None, init=False)
    watch: Any = attrs.field(default=None, init=False)
    state: StashKey[PairState] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        file = self.file or target.info.extras.get("companions", {}).get("eagle3")
        if file is None:
            hint = "name one: --method eagle3=FILE, or train one: spec train eagle3"
            return Compat(refusals=[Refusal(f"no head is given, and {target.info.name} knows none", hint)])
        holder = load(file, weights=False)
        if refusal := self._misfit(target, holder):
            return Compat(refusals=[refusal])
        sources = holder.info.extras["head"].sources(target.info.layers, self.layer_ids)
        last = target.info.layers
        return Compat(
            needs=Needs(
                hidden={i for i in sources if i < last},
                final=last in sources,
                trees=self.width > 1 and target.info.trees,
            ),
            drafts=self.drafter.proposals,
            forwards=lambda k: k,
            load=lambda target: self._load(target, holder, sources),
        )

    def _misfit(self, target: Target, holder: Target) -> Refusal | None:
        head = holder.info.extras.get("head")
        if head is None or head.kind != "eagle3":
            found = "no draft head" if head is None else f"a head of kind {head.kind}"
            return Refusal(f"{holder.info.name} is {found}", "give the EAGLE-3 head of this very model")
        if "executor" not in target.info.extras:
            return Refusal(f"{target.info.name} lends its weights to no head", "use a GGUF or Hugging Face model")
        problem = holder.info.extras["misfit"](target, self.layer_ids)
        return Refusal(*problem) if problem else None

    def _load(self, target: Target, holder: Target, sources: tuple[int, ...]) -> None:
        self.layer = Layer(holder.info.extras, sources, target.info.layers, target.info.extras["executor"]())

    @property
    def draft_max(self) -> int:
        return self.depth

    def hidden(self, spans: Spans[Span]) -> list[Tensor]:
        """Features, for all sequences at once."""
        states = [torch.cat([stream(span, i, self.layer.final) for span in spans]) for i in self.layer.sources]
        return list(self.layer.features(states).split([len(span.tokens) for span in spans]))

    def logits(self, rows: Tensor) -> Tensor:
        return self.layer.logits(rows)


def stream(span: Span, i: int, final: int) -> Tensor:
    """The hidden states that enter block i; those of number ``final`` are read after the final norm."""
    return span.final if i == final and span.final is not None else span.hidden[i]
