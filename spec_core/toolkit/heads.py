"""A draft head in a file of its own: which file, whether it fits the target, and which hidden states it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs
from torch import Tensor

from spec_core.contract.rows import Span
from spec_core.contract.target import Target
from spec_core.contract.values import Needs, Refusal

Reading = Literal["auto", "inputs", "outputs"]
"""What a file's layer ids mean: layers that are entered, or left; auto: by its kind."""


@attrs.frozen(eq=False)
class DraftHead:
    """A head that fits a target.

    facts: ``info.extras`` of its file. sources: the hidden states that it reads, in order: number i enters block i, and
    number ``last`` is the one after the final norm.
    """

    facts: Mapping[str, Any]
    sources: tuple[int, ...]
    last: int

    @property
    def needs(self) -> Needs:
        return Needs(hidden={i for i in self.sources if i < self.last}, final=self.last in self.sources)

    def states(self, span: Span) -> list[Tensor]:
        """[n, D] of a span for each of the sources."""
        return [span.final if i == self.last and span.final is not None else span.hidden[i] for i in self.sources]


def draft_head(
    target: Target, kind: str, file: str | None, load: Callable[..., Target], reading: Reading = "auto"
) -> DraftHead | Refusal:
    """The head of a kind in a file, or the one that the target knows; a Refusal where there is none that fits.

    load: ``spec_core.load``. No weight of the target is read. Raises UsageError for a file that cannot be read.
    """
    file = file or target.info.extras.get("companions", {}).get(kind)
    if file is None:
        hint = f"name one: --method {kind}=FILE, or train one: spec train {kind}"
        return Refusal(f"no head is given, and {target.info.name} knows none", hint)
    holder = load(file, weights=False)
    if refusal := _misfit(target, holder, kind, reading):
        return refusal
    last = target.info.layers
    return DraftHead(holder.info.extras, holder.info.extras["head"].sources(last, reading), last)


def _misfit(target: Target, holder: Target, kind: str, reading: Reading) -> Refusal | None:
    head = holder.info.extras.get("head")
    if head is None or head.kind != kind:
        found = "no draft head" if head is None else f"a head of kind {head.kind}"
        return Refusal(f"{holder.info.name} is {found}", f"give the {kind} head of this very model")
    if "executor" not in target.info.extras:
        return Refusal(f"{target.info.name} lends its weights to no head", "use a GGUF or Hugging Face model")
    problem = holder.info.extras["misfit"](target, reading)
    return Refusal(*problem) if problem else None
