"""A self-draft that attends to a window and to the first rows of the text (MagicDec, Sadhukhan et al., 2408.11049).

All blocks of the target run, in the sequence's own cache: a draft of a long text reads few of its rows. The first rows
are the sinks of StreamingLLM (Xiao et al., 2309.17453), which every row attends to most; they keep their positions.
"""

from __future__ import annotations

import attrs
from attrs.validators import ge

from spec_core import Compat, DraftStep, Needs, RollbackStep, Sequence, StashKey, Target, hookimpl
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
class Windowed:
    """Draft with the whole target, whose attention sees the first ``sinks`` rows and the last ``window``."""

    window: int = attrs.field(default=256, validator=ge(1), metadata={"help": "last rows that attention sees"})
    sinks: int = attrs.field(default=4, validator=ge(0), metadata={"help": "first rows that attention sees, too"})
    draft_max: int = attrs.field(default=4, validator=ge(1), metadata={"help": "longest draft", "off": 256})
    p_min: float | None = p_min_field("end a draft that is less likely to be accepted; 0.3")
    blocks: PartialForward = attrs.field(default=None, init=False)
    drafter: TokenDrafter = attrs.field(init=False)
    estimate: StashKey[AcceptanceEstimate] = attrs.field(factory=StashKey, init=False)

    def __attrs_post_init__(self) -> None:
        self.drafter = TokenDrafter(self.p_min)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(
            needs=Needs(partial=True),
            drafts=self.drafter.proposals,
            forwards=lambda drafted: drafted,
            load=self.load,
            catches_up=True,
            learns="length",
        )

    def load(self, target: Target) -> None:
        self.blocks = partial_forward(target, range(target.info.layers), self.window, sinks=self.sinks)

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
