"""Orthrus: the target drafts a block of tokens at once, with attention of its own (chiennv2000/orthrus).

Every layer runs once more with other projections over the last token and masks, which see each other and the sequence's
keys and values. The folder is a model as published, with tensors ``*_diff``::

    spec generate -m Qwen/Qwen3-1.7B --method orthrus=chiennv/Orthrus-Qwen3-1.7B -p "def add(a, b):"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from attrs.validators import ge

from spec_core import Compat, DraftStep, Needs, Refusal, Sequence, Target, hookimpl
from spec_core.errors import UsageError
from spec_core.toolkit import (
    BlockOfTarget,
    Overlay,
    TokenDrafter,
    block_tensor_name,
    overlay_problem,
    p_min_field,
    partial_forward,
    partial_problem,
    read_overlay_tensors,
)


@attrs.define(eq=False)
class Orthrus:
    """Draft a block of masks with the target's layers and other attention."""

    folder: str = attrs.field(default="", metadata={"help": "the model's folder, with tensors *_diff"})
    block: int = attrs.field(default=0, validator=ge(0), metadata={"help": "rows of a block; 0: as in config.json"})
    mask: int = attrs.field(default=-1, metadata={"help": "id of the mask token; -1: as in config.json"})
    draft_max: int = attrs.field(default=256, validator=ge(1), metadata={"help": "longest draft"})
    p_min: float | None = p_min_field("end a draft that is less likely to be accepted; 0.3")
    rows: BlockOfTarget = attrs.field(default=None, init=False)
    drafter: TokenDrafter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.drafter = TokenDrafter(self.p_min)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        reason = self.misfit(target)
        return Compat(
            needs=Needs(partial=True),
            drafts=self.drafter.proposals,
            forwards=lambda drafted: 1,
            refusals=[Refusal(reason, "write --method orthrus=FOLDER, of a model made from this target")]
            if reason
            else [],
            load=self.load,
            catches_up=True,
        )

    def misfit(self, target: Target) -> str | None:
        """Why the folder cannot draft for a target, from shapes alone."""
        if not self.folder:
            return "no folder is named"
        if partial_problem(target) is not None:
            return None  # the run says it
        self.read_config(target.info.vocab)
        return overlay_problem(target, self.overlay(values=False))

    def read_config(self, vocab: int) -> None:
        """Take the size of a block and the mask token from config.json, where they are not given."""
        path = Path(self.folder) / "config.json"
        try:
            config: Any = json.loads(path.read_bytes())
            block, mask = self.block or config["block_size"], self.mask if self.mask >= 0 else config["mask_token_id"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(
                f"{path}: no block_size and mask_token_id: {error!r}", hint="give block and mask"
            ) from error
        if type(block) is not int or type(mask) is not int or not 2 <= block <= 256 or not 0 <= mask < vocab:
            raise UsageError(f"{path}: block {block} of mask {mask}", hint=f"2 to 256 rows, of a token below {vocab}")
        self.block, self.mask = block, mask

    def overlay(self, values: bool = True) -> Overlay:
        name_of = lambda name: block_tensor_name(name.replace("_diff.", ".")) if "_diff." in name else None
        return Overlay(read_overlay_tensors(self.folder, name_of, values), both_ways=True)

    def load(self, target: Target) -> None:
        blocks = range(target.info.layers)
        rows, plain = partial_forward(target, blocks, overlay=self.overlay()), partial_forward(target, blocks)
        self.rows = BlockOfTarget(rows, plain, self.block)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        self.rows.draft(step, self.drafter, min(self.draft_max, self.block - 1), self.block_tokens)

    def block_tokens(self, seq: Sequence) -> list[int]:
        return [seq.tokens[-1], *[self.mask] * (self.block - 1)]
