"""Parallel drafts from learned vectors (PaSS, Monea et al., 2311.13581; attached as in PPD, 2405.18628).

After the text and after every drafted token stand ``vectors`` rows that the target reads in place of the tokens to
come. After the verdict the rows after the last kept token give the next draft, so no step is spent on drafting alone.
The file has one tensor ``vectors``, [n, D], learned for the target::

    spec generate -m zoo:pico --method pass=vectors.safetensors -p "def add(a, b):"
"""

from __future__ import annotations

from pathlib import Path

import attrs
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from spec_core import (
    Compat,
    Draft,
    DraftStep,
    Needs,
    Probes,
    Refusal,
    RollbackStep,
    Sequence,
    StashKey,
    Target,
    UsageError,
    hookimpl,
)

ROWS_MAX = 16
"""Most vectors of a file."""


@attrs.define(eq=False)
class Pass:
    """Draft with vectors in place of the tokens to come."""

    file: str = attrs.field(default="", metadata={"help": "safetensors with a tensor vectors [n, D]"})
    vectors: Tensor = attrs.field(default=None, init=False)
    ahead: StashKey[tuple[int, list[int]]] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        if not self.file:
            return Compat(refusals=[Refusal("no vectors are named", "write --method pass=FILE")])
        count, width = self.read_shape()
        wrong = f"{self.file} has {count} vectors of width {width}, {target.info.name} has width {target.info.width}"
        fits = width == target.info.width and 1 <= count <= ROWS_MAX
        hint = f"give 1 to {ROWS_MAX} vectors that were learned for this target"
        return Compat(
            needs=Needs(probes=count * (count + 1), logits=True),
            drafts={"deterministic"},
            refusals=[] if fits else [Refusal(wrong, hint)],
            load=self.load,
            learns="length",
            forwards=lambda k: 0,
        )

    def read_shape(self) -> tuple[int, int]:
        """Shape of the vectors, from the header alone."""
        try:
            with safe_open(Path(self.file), "pt") as file:
                shape = file.get_slice("vectors").get_shape()
        except (OSError, SafetensorError) as error:
            raise UsageError(
                f"{self.file}: no tensor vectors: {error}", hint="name a file with such a tensor"
            ) from error
        if len(shape) != 2:
            raise UsageError(f"{self.file}: vectors has the shape {shape}", hint="[n, D] is needed")
        return shape[0], shape[1]

    def load(self, target: Target) -> None:
        with safe_open(Path(self.file), "pt") as file:
            self.vectors = file.get_tensor("vectors").float()
        if not bool(torch.isfinite(self.vectors).all()):
            raise UsageError(f"{self.file}: a vector is not finite", hint="learn the vectors again")

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            at, ids = seq.stash.get(self.ahead, (-1, []))
            if at == len(seq.tokens) and ids:
                step.propose(seq, Draft(ids[:budget]))
            self.probe(step, seq)

    def probe(self, step: DraftStep, seq: Sequence) -> None:
        """Vectors after the last token of the text, and after every token of this method's draft."""
        part, count = step.part(seq), len(self.vectors)
        if part.drafted > count or step.probe_room(seq) < (part.drafted + 1) * count:
            return
        parents: list[int] = []
        for before in range(-1, part.drafted):
            first = part.drafted + len(parents)
            parents += [before, *range(first, first + count - 1)]
        embeds = {i: self.vectors[i % count] for i in range(len(parents))}
        step.probe(seq, Probes([-1] * len(parents), parents, embeds))

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        count = len(self.vectors)
        for seq, verdict in step.verdicts.items():
            if not seq.wants(step.plugin) or (rows := step.probe_rows(seq)) is None:
                continue
            first = len(verdict.path) * count
            guesses = rows.logits[first : first + count].argmax(-1).tolist()
            seq.stash[self.ahead] = len(seq.tokens) + len(verdict.path) + 1, guesses
