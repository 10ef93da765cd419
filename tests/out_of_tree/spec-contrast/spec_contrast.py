"""Contrastive decoding (Li et al., 2210.15097): what the target says more than a small model does.

The text is defined without drafts. Every step is decided by this rule, so that drafts change nothing but the speed.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import torch

from spec_core import AcceptStep, Compat, Needs, Part, Refusal, Sequence, StashKey, Target, hookimpl, load
from spec_core.toolkit import adjust_row, forward, open_sequence, support, uniform, walk_draft


@attrs.define(eq=False)
class SmallText:
    """A sequence of the small model. tokens: those whose rows it holds, drafted ones included."""

    seq: Sequence
    tokens: list[int] = attrs.field(factory=list)

    def missing(self, tokens: list[int]) -> int:
        """First position whose row is missing, or is of another token; the last token's row is made anew."""
        known = zip(self.tokens, tokens[:-1], strict=False)
        same = next((i for i, (one, other) in enumerate(known) if one != other), len(self.tokens))
        return min(same, len(tokens) - 1)


@attrs.define(eq=False)
class Contrast:
    """Keep the drafted tokens that the target says more than a small model does."""

    file: str = attrs.field(default="", metadata={"help": "the small model"})
    weight: float = attrs.field(default=0.5, metadata={"help": "of the small model's logits"})
    plausible: float = attrs.field(default=0.1, metadata={"help": "least share of the best probability"})
    model: Target = attrs.field(init=False)
    text: StashKey[SmallText] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        refusals = [] if self.file else [Refusal("no small model is named", "--rule contrast:file=MODEL")]
        return Compat(steers=f"contrasts the model with {self.file}", refusals=refusals, load=self.open_model)

    def open_model(self, target: Target) -> None:
        """Load the small model, on the target's device."""
        self.model = load(self.file, device=target.info.device)

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        seqs = list(step.undecided)
        if not seqs:
            return
        parts = [self.part_of(seq, step.part(seq)) for seq in seqs]
        logits = forward(self.model, parts, Needs(trees=step.trees)).output.logits
        for seq, part in zip(seqs, parts, strict=True):
            small = logits[part.logits_row : part.logits_row + 1 + part.drafted]
            large = step.logits(seq)
            choose = lambda row, seq=seq, large=large, small=small: self.choose(step, seq, row, large, small)
            step.decide(seq, walk_draft(step.part(seq).draft, choose))

    def part_of(self, seq: Sequence, part: Part) -> Part:
        """The rows that the small model lacks of this text, and the draft."""
        text = seq.stash.get(self.text)
        if text is None:
            text = seq.stash[self.text] = SmallText(open_sequence(self.model, close_when_dropped=True))
        start, text.tokens = text.missing(seq.tokens), list(seq.tokens)
        return Part(text.seq, start, seq.tokens[start:], decides=True, draft=part.draft)

    def choose(self, step: AcceptStep, seq: Sequence, row: int, large: Any, small: Any) -> int:
        """The token after a row, by the seed's noise of its position."""
        history = step.history(seq, row)
        logits = adjust_row(large[row].double(), seq.sampling, history, seq.prompt_len, step.mask(seq, row))
        likely = logits >= logits.max() + math.log(self.plausible)
        steered = torch.where(likely, (1 + self.weight) * logits - self.weight * small[row].double(), -torch.inf)
        if seq.sampling.temperature == 0:
            return int(steered.argmax())
        ids, scores = support(steered, seq.sampling)
        seed, stream, domain = step.choosing(seq)
        position = seq.output_position + len(history) - len(seq.tokens)
        noise = torch.from_numpy(uniform(seed, position, ids.numpy(), stream, domain))
        return int(ids[(scores - (-noise.log()).log()).argmax()])
