"""Draft K tokens in one forward: the draft model reads the text and K - 1 mask tokens (PARD, An et al., 2504.18583).

The draft model must have been trained to predict a token at every mask; with any other model only the first drafted
token is a prediction::

    spec generate -m zoo:pico --method pard:file=zoo:pico-draft,mask=0 -p "def add(a, b):"
"""

from __future__ import annotations

import attrs
from attrs.validators import ge

from spec_core import Compat, Draft, DraftStep, Part, Refusal, Sequence, StashKey, Target, TargetInfo, hookimpl, load
from spec_core.toolkit import AcceptanceEstimate, PartialDraft, TokenDrafter, forward, open_sequence, p_min_field


@attrs.define(eq=False)
class DraftModelRows:
    """The draft model's rows of one sequence. tokens: the text that it has read; masks are not kept."""

    seq: Sequence
    tokens: list[int] = attrs.field(factory=list)

    def agree(self, tokens: list[int]) -> int:
        """Number of rows that are still valid; the last token is always read, since its logits are needed."""
        pairs = enumerate(zip(self.tokens, tokens[:-1], strict=False))
        return next((i for i, (a, b) in pairs if a != b), min(len(self.tokens), len(tokens) - 1))


@attrs.define(eq=False)
class Pard:
    """Drafts with a model that predicts a token at every mask after the text."""

    file: str = attrs.field(default="", metadata={"help": "the draft model"})
    mask: int = attrs.field(default=-1, metadata={"help": "id of the mask token"})
    draft_max: int = attrs.field(default=8, validator=ge(1), metadata={"help": "longest draft", "off": 256})
    p_min: float | None = p_min_field("end a draft that is less likely to be accepted; 0.3")
    model: Target = attrs.field(init=False)
    rows: StashKey[DraftModelRows] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        refusals = [Refusal("no draft model is named", "write --method pard:file=MODEL,mask=ID")]
        if self.file:
            refusals = misfits(target.info, load(self.file, weights=False).info, self.mask)
        kinds = TokenDrafter(self.p_min).proposals
        return Compat(drafts=kinds, forwards=lambda k: 1, refusals=refusals, load=self.load, catches_up=True)

    def load(self, target: Target) -> None:
        self.model = load(self.file, device=target.info.device)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        context = self.model.info.context
        room = [(seq, min(budget, self.draft_max, context + 1 - len(seq.tokens))) for seq, budget in step.undrafted]
        drafts = [PartialDraft(seq, n, AcceptanceEstimate()) for seq, n in room if n > 0 and not seq.embeds]
        if not drafts:
            return
        drafter, parts = TokenDrafter(self.p_min), [self.part(draft.seq, draft.budget) for draft in drafts]
        output = forward(self.model, parts).output
        assert output is not None
        logits = output.logits[:, : step.target.info.vocab]
        step.report_cost(forwards=1, rows=sum(len(part.pending) + part.drafted for part in parts))
        for part, draft in zip(parts, drafts, strict=True):
            for row in logits[part.logits_row : part.logits_row + draft.budget]:
                if draft.open:
                    drafter.extend(step, draft, row)
            step.propose(draft.seq, drafter.finish(draft))

    def part(self, seq: Sequence, length: int) -> Part:
        """The tokens that the draft model has not read, and masks in place of a draft: its next forward drops them."""
        rows = seq.stash.get(self.rows)
        if rows is None:
            rows = seq.stash[self.rows] = DraftModelRows(open_sequence(self.model, close_when_dropped=True))
        start, rows.tokens = rows.agree(seq.tokens), list(seq.tokens)
        masks = Draft([self.mask] * (length - 1)) if length > 1 else None
        return Part(rows.seq, start, rows.tokens[start:], decides=True, draft=masks)


def misfits(target: TargetInfo, draft: TargetInfo, mask: int) -> list[Refusal]:
    """Why a draft model cannot draft for a target, from the metadata of both."""
    if draft.vocab_id != target.vocab_id or draft.vocab < target.vocab:
        return [Refusal(f"{draft.name} has other tokens than {target.name}", "name a draft model of the same family")]
    if draft.states != {"attention"}:
        return [Refusal(f"{draft.name} has recurrent state, which cannot drop masks", "name a dense draft model")]
    if not 0 <= mask < draft.vocab:
        return [Refusal(f"mask is {mask}, {draft.name} has {draft.vocab} tokens", "name the mask token: pard:mask=ID")]
    return []
