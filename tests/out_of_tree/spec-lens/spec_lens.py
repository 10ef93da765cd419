"""Draft from one hidden state: linear maps to the hidden states that will follow it.

Pal et al., "Future Lens: Anticipating Subsequent Tokens from a Single Hidden State", 2311.04897. The maps are fitted
to the target, by least squares on its own hidden states, and kept in a file::

    python -m spec_lens zoo:pico texts.txt lens.safetensors
    spec generate -m zoo:pico --method lens=lens.safetensors -p "def add(a, b):"
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import attrs
import torch
from attrs.validators import ge, le
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from spec_core import Compat, Needs, Refusal, StashKey, Target, TargetInfo, hookimpl, load
from spec_core.toolkit import AcceptanceEstimate, PartialDraft, SampleMode, TokenDrafter, evaluate


@attrs.define(eq=False)
class Lens:
    """Drafts with linear maps that were fitted to the target."""

    file: Path | None = attrs.field(default=None, metadata={"help": "the maps that python -m spec_lens wrote"})
    draft_max: int = attrs.field(default=4, validator=ge(1), metadata={"help": "longest draft"})
    p_min: float = attrs.field(
        default=0.2,
        validator=[ge(0.0), le(1.0)],
        metadata={"help": "stop where a draft is less likely than this to be accepted so far", "off": 0.0},
    )
    sample: SampleMode = attrs.field(default="auto", metadata={"help": "greedy, sampled, or auto: as the request"})
    last: StashKey[Tensor] = attrs.field(factory=StashKey, init=False)
    estimate: StashKey[AcceptanceEstimate] = attrs.field(factory=StashKey, init=False)
    maps: Tensor = attrs.field(init=False)
    output: Tensor = attrs.field(init=False)

    @property
    def drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample)

    @hookimpl
    def compat(self, target):
        return Compat(
            needs=Needs(final=True, weights={"output.weight"}),
            drafts=self.drafter.proposals,
            forwards=lambda drafted: 0,
            refusals=misfits(self.file, target.info),
            load=self.load,
            learns="length",
        )

    def load(self, target):
        with safe_open(self.file, "pt") as file:
            self.maps = file.get_tensor("maps")
        self.output = target.tensor("output.weight").to(self.maps.dtype)

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            hidden = seq.stash[self.last]  # of the row before the last token
            self.propose(step, seq, [self.output @ (m @ hidden) for m in self.maps[: min(budget, self.draft_max)]])

    def propose(self, step, seq, rows):
        draft = PartialDraft(seq, len(rows), seq.stash.setdefault(self.estimate, AcceptanceEstimate()))
        for row in rows:
            if draft.open:
                self.drafter.extend(step, draft, row)
        step.propose(seq, self.drafter.finish(draft))

    @hookimpl
    def rollback(self, step):
        for seq, part in step.draft_results:
            estimate = seq.stash.setdefault(self.estimate, AcceptanceEstimate())
            estimate.fade()
            estimate.learn(part.drafted, len(part.full_verdict.path))

    @hookimpl
    def process(self, rows):
        for seq, span in rows.by_sequence():
            seq.stash[self.last] = span.final[-1].to(self.maps.dtype, copy=True)


def misfits(file: Path | None, info: TargetInfo) -> list[Refusal]:
    """Why a file does not go with a target, from the file's header."""
    if file is None:
        return [Refusal("no file of maps is named", "make one with python -m spec_lens, and name it: lens=FILE")]
    try:
        with safe_open(file, "pt") as opened:
            shape = opened.get_slice("maps").get_shape()
    except Exception as error:
        return [Refusal(f"{file} cannot be read: {error}", "make it again with python -m spec_lens")]
    if shape[1:] != [info.width, info.width]:
        return [Refusal(f"{file} has maps {shape}, the target's width is {info.width}", "fit maps to this target")]
    return []


def fit(target: Target, texts: Iterable[list[int]], depth: int = 4) -> Tensor:
    """Maps [depth, D, D] float32: the i-th takes a final hidden state to the one i + 1 positions later."""
    states = [evaluate(target, ids, Needs(final=True)).final.double().clone() for ids in texts]
    return torch.stack([least_squares(states, 1 + i) for i in range(depth)]).float()


def least_squares(states: list[Tensor], distance: int) -> Tensor:
    """[D, D]: later = map @ now, with a little of the identity so that few rows are enough."""
    now = torch.cat([rows[:-distance] for rows in states])
    later = torch.cat([rows[distance:] for rows in states])
    ridge = 1e-3 * now.square().sum() / now.shape[1] * torch.eye(now.shape[1], dtype=now.dtype)
    return torch.linalg.solve(now.T @ now + ridge, now.T @ later).T.contiguous()


def main(model: str, texts: str, out: str) -> None:
    target = load(model)
    ids = target.tokenizer.encode(Path(texts).read_text("utf-8"))
    pieces = [ids[i : i + 256] for i in range(0, len(ids), 256)]
    save_file({"maps": fit(target, [piece for piece in pieces if len(piece) > 16])}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
