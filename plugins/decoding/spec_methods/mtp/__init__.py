"""The model's own next-token layers draft (MTP; NextN in GGUF): DeepSeek-V3, 2412.19437, section 2.2.

A layer reads pairs of a hidden state and the token after it. Missing pairs of committed text are evaluated together
with the first drafted token, so k drafts cost k forwards of one block. Of several layers the first drafts the first
token, the second the second after the first one's states, and so on; the last one drafts all further tokens.
With ``extend`` it goes on where another method's draft ends: the layer reads that draft's tokens after its own states.

Example: the target chose ``cat`` after ``the``. The first forward reads (hidden state at ``the``, ``cat``) and drafts
``sat``; the second reads (its own hidden state, ``sat``) and drafts ``on``.
"""

from __future__ import annotations

from collections.abc import Sequence as Spans
from typing import Any, Literal

import attrs
from attrs.validators import ge, le
from spec_kernels.drafting import executor_of, trunk_weights
from torch import Tensor

from spec_core import Compat, Needs, Refusal, Span, StashKey, Target, hookimpl, load
from spec_core.toolkit import (
    NextTokenLayer,
    PairDrafter,
    PairState,
    SampleMode,
    last_norm_readings,
    next_token_layers,
    p_min_field,
    sample_field,
)
from spec_methods.mtp.layer import draft_layers

LastNorm = Literal["auto", "rms", "layer"]
NORMS = {"rms": "RMSNorm, as in vLLM", "layer": "LayerNorm, as in llama.cpp"}


@attrs.define(eq=False)
class Mtp(PairDrafter):
    """Drafts with the NextN layer of the target or of a separate file."""

    file: str | None = attrs.field(default=None, metadata={"help": "a file with the layer; default: the target's own"})
    draft_max: int = attrs.field(
        default=4, validator=[ge(1), le(256)], metadata={"help": "max draft length", "off": 256}
    )
    p_min: float | None = p_min_field("stop when the draft's acceptance probability falls below this; 0.3")
    sample: SampleMode = sample_field()
    last_norm: LastNorm = attrs.field(
        default="auto",
        metadata={"help": "last norm of a layer that engines read in two ways; auto: as the file's writer reads it"},
    )
    extend: bool = attrs.field(default=False, metadata={"help": "extend the drafts of methods named before it"})
    layer: Any = attrs.field(default=None, init=False)
    watch: Any = attrs.field(default=None, init=False)
    state: StashKey[PairState] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        holder = target if self.file is None else load(self.file, weights=False)
        if refusal := self._misfit(target, holder):
            return Compat(refusals=[refusal])
        return Compat(
            notes=self._norm_notes(last_norm_readings(next_token_layers(holder)[0])),
            shares=True,
            needs=Needs(final=True, weights=frozenset().union(*map(_trunk_weights, next_token_layers(holder)))),
            drafts=self.drafter.proposals,
            extends=self.extend,
            forwards=lambda k: k,
            load=lambda target: self._load(target, holder),
            learns="length",
        )

    def _misfit(self, target: Target, model: Target) -> Refusal | None:
        layers = next_token_layers(model)
        if not layers:
            hint = "name a file that has one (--method mtp=FILE), or use another method"
            return Refusal(f"{model.info.name} has no NextN layer", hint)
        if problem := next((layer.problem for layer in layers if layer.problem), None):
            return Refusal(problem, "convert the model again, with its NextN layer, or use another method")
        known = last_norm_readings(layers[0])
        if self.last_norm != "auto" and self.last_norm not in known:
            return Refusal(
                f"last_norm={self.last_norm}: the last norm of {model.info.name} is read as {known[0]} by all engines",
                "leave last_norm out",
            )
        if (model.info.vocab, model.info.width) != (target.info.vocab, target.info.width):
            layer_size = f"{model.info.vocab} tokens and width {model.info.width}"
            target_size = f"{target.info.vocab} and {target.info.width}"
            return Refusal(
                f"the NextN layer has {layer_size}, the target {target_size}", "use the file of the same model"
            )
        own = next_token_layers(target)
        if own and own[0].heads != layers[0].heads:
            file, needed = (f"heads of {a}, {b} dimensions of them rotated" for a, b in (layers[0].heads, own[0].heads))
            return Refusal(f"the NextN layer has {file}, the target {needed}", "use the file of the same model")
        return None

    def _norm_notes(self, known: tuple[str, ...]) -> list[str]:
        """The reading of a last norm that engines read in two ways."""
        if len(known) == 1:
            return []
        chosen = known[0] if self.last_norm == "auto" else self.last_norm
        others = ", ".join(f"last_norm={norm}" for norm in known if norm != chosen)
        return [f"last norm: {NORMS[chosen]}; engines differ, the other reading is {others}"]

    def _load(self, target: Target, model: Target) -> None:
        layers: tuple[Any, ...] = next_token_layers(model)
        if self.last_norm != "auto":
            layers = tuple(layer.with_last_norm(self.last_norm) for layer in layers)
        self.layer = draft_layers(layers, executor_of(target))

    @property
    def longest(self) -> int:
        return self.draft_max

    def hidden_states(self, spans: Spans[Span]) -> list[Tensor]:
        return [span.final.clone() for span in spans]


def _trunk_weights(layer: NextTokenLayer) -> frozenset[str]:
    """Names of the trunk's tensors that a layer uses."""
    return trunk_weights(layer.names)
