"""Self-speculation with an early exit (LayerSkip, Elhoushi et al., 2404.16710), with blocks left out (2309.08168), or
with a window of attention (as MagicDec, 2408.11049, without its sinks).

The blocks that draft read the sequence's own rows, and write theirs after them; the verification writes over these.
"""

from __future__ import annotations

import attrs
from attrs.validators import ge

from spec_core import Compat, DraftStep, Needs, Refusal, RollbackStep, Sequence, StashKey, Target, hookimpl
from spec_core.toolkit import (
    AcceptanceEstimate,
    PartialDraft,
    PartialForward,
    TokenDrafter,
    p_min_field,
    partial_forward,
)


@attrs.define(eq=False)
class Work:
    """A draft that goes on. start, tokens: the rows of the next forward."""

    draft: PartialDraft
    start: int
    tokens: list[int]


@attrs.define(eq=False)
class LayerSkip:
    """Draft with the first blocks of the target, or with all but some."""

    exit: int | None = attrs.field(default=None, metadata={"help": "number of first blocks; a third of them"})
    skip: str = attrs.field(default="", metadata={"help": "in place of exit: blocks to leave out, such as 3+5"})
    window: int = attrs.field(default=0, validator=ge(0), metadata={"help": "rows that attention sees; 0: all"})
    draft_max: int = attrs.field(default=4, validator=ge(1), metadata={"help": "longest draft", "off": 256})
    p_min: float | None = p_min_field("end a draft that is less likely to be accepted; 0.3")
    blocks: PartialForward = attrs.field(default=None, init=False)
    drafter: TokenDrafter = attrs.field(init=False)
    estimate: StashKey[AcceptanceEstimate] = attrs.field(factory=StashKey, init=False)

    def __attrs_post_init__(self) -> None:
        self.drafter = TokenDrafter(self.p_min)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        blocks, layers = self.choose_blocks(target.info.layers), target.info.layers
        wrong = f"of the blocks {blocks} the target has 0 to {layers - 1}, and one must run and one be left out"
        fits = blocks and set(blocks) <= set(range(layers)) and (len(blocks) < layers or self.window)
        return Compat(
            needs=Needs(partial=True),
            drafts=self.drafter.proposals,
            forwards=lambda drafted: drafted,
            refusals=[] if fits else [Refusal(wrong, "set layerskip.exit, or layerskip.skip, to other blocks")],
            load=self.load,
            catches_up=True,
            learns="length",
        )

    def choose_blocks(self, layers: int) -> list[int]:
        """Numbers of the blocks that draft."""
        if self.skip:
            skipped = {int(number) for number in self.skip.split("+")}
            return [i for i in range(layers) if i not in skipped]
        return list(range(max(1, layers // 3) if self.exit is None else self.exit))

    def load(self, target: Target) -> None:
        self.blocks = partial_forward(target, self.choose_blocks(target.info.layers), self.window)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        works = [self.begin(seq, budget) for seq, budget in step.undrafted if not seq.embeds]
        going = [work for work in works if work.draft.open]
        while going:
            self.extend(step, going)
            going = [work for work in going if work.draft.open]
        for work in works:
            step.propose(work.draft.seq, self.drafter.finish(work.draft))

    def begin(self, seq: Sequence, budget: int) -> Work:
        estimate = seq.stash.setdefault(self.estimate, AcceptanceEstimate())
        draft = PartialDraft(seq, min(budget, self.draft_max), estimate)
        return Work(draft, seq.evaluated, seq.tokens[seq.evaluated :])

    def extend(self, step: DraftStep, works: list[Work]) -> None:
        """Add a token to every draft, in one forward."""
        logits = self.blocks.forward([(work.draft.seq, work.start, work.tokens) for work in works])
        step.report_cost(forwards=1, rows=sum(len(work.tokens) for work in works))
        for work, row in zip(works, logits, strict=True):
            work.start += len(work.tokens)
            work.tokens = [self.drafter.extend(step, work.draft, row)]

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, result in step.draft_results:
            estimate = seq.stash.setdefault(self.estimate, AcceptanceEstimate())
            estimate.fade()
            estimate.learn(result.drafted, len(result.full_verdict.path))
