"""Self-speculation whose blocks are searched while it runs (SWIFT, Xia et al., 2410.06916).

The target drafts without some of its blocks. Every few drafts another subset is tried: the best so far with one block
more and one less left out. The subset whose drafts were accepted the most becomes the best one, for all texts with the
same cache salt; the search ends when nothing better was found for some trials.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeAlias

import attrs
from attrs.validators import ge, gt, le

from spec_core import Compat, DraftStep, Needs, Refusal, RollbackStep, Sequence, Target, hookimpl
from spec_core.toolkit import AcceptanceEstimate, PartialDraft, PartialForward, TokenDrafter, partial_forward

Blocks: TypeAlias = frozenset[int]
STEPS = 4
"""Drafts with which a subset is tried."""
SALTS = 64
"""Searches that are kept."""


@attrs.define
class Score:
    """Draft tokens of a subset of the blocks that were tested, and accepted ones."""

    tested: int = 0
    accepted: int = 0
    drafts: int = 0

    @property
    def share(self) -> float:
        return self.accepted / self.tested if self.tested else 0.0


@attrs.define(eq=False)
class Search:
    """The subsets that were tried. left_out: blocks of the present one. best: of the best one so far."""

    layers: int
    left_out: Blocks
    best: Blocks
    trials: int
    failures: int = 0
    scores: dict[Blocks, Score] = attrs.field(factory=dict)
    draw: random.Random = attrs.field(factory=lambda: random.Random(0))

    def learn(self, tested: int, accepted: int) -> None:
        """Count a draft of the present subset."""
        score = self.scores.setdefault(self.left_out, Score())
        score.tested, score.accepted, score.drafts = score.tested + tested, score.accepted + accepted, score.drafts + 1

    def choose(self) -> None:
        """Choose the next subset, if this one was tried enough."""
        score = self.scores.setdefault(self.left_out, Score())
        if score.drafts < STEPS or self.failures >= self.trials:
            return
        if self.left_out != self.best:
            better = score.share > self.scores[self.best].share
            self.best, self.failures = (self.left_out, 0) if better else (self.best, self.failures + 1)
        self.left_out = self.change(self.best) if self.failures < self.trials else self.best

    def change(self, left_out: Blocks) -> Blocks:
        """A subset that was not tried, with one block exchanged; the same one if the draw finds none."""
        inner = range(1, self.layers - 1)
        for _ in range(self.layers):
            back, gone = (self.draw.choice(sorted(blocks)) for blocks in (left_out, {*inner} - left_out))
            if (other := left_out - {back} | {gone}) not in self.scores:
                return other
        return left_out


@attrs.define(eq=False)
class Work:
    """A draft that goes on. blocks: that run. start, tokens: the rows of the next forward."""

    draft: PartialDraft
    blocks: PartialForward
    start: int
    tokens: list[int]


@attrs.define(eq=False)
class Swift:
    """Draft with a subset of the target's blocks that is searched while texts are generated."""

    share: float = attrs.field(default=0.4, validator=[gt(0), le(0.9)], metadata={"help": "share of blocks left out"})
    trials: int = attrs.field(default=12, validator=ge(0), metadata={"help": "end the search after so many failures"})
    draft_max: int = attrs.field(default=4, validator=ge(1), metadata={"help": "longest draft", "off": 256})
    target: Target = attrs.field(default=None, init=False)
    parts: dict[Blocks, PartialForward] = attrs.field(factory=dict, init=False)
    drafter: TokenDrafter = attrs.field(factory=lambda: TokenDrafter(0.0), init=False)
    searches: dict[str, Search] = attrs.field(factory=dict, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        wrong = f"the target has {target.info.layers} blocks; the first and the last stay, of four or more"
        return Compat(
            needs=Needs(partial=True),
            drafts=self.drafter.proposals,
            forwards=lambda drafted: drafted,
            refusals=[] if target.info.layers >= 4 else [Refusal(wrong, "use a target with more blocks")],
            load=self.load,
            catches_up=True,
            learns="tokens",
            shares_learning=True,
        )

    def load(self, target: Target) -> None:
        self.target = target
        self.part_without(self.first_choice())

    def first_choice(self) -> Blocks:
        """Every second of the inner blocks, as many as the share says, from the middle on."""
        inner = range(1, self.target.info.layers - 1)
        count = min(max(1, round(self.share * self.target.info.layers)), len(inner) - 1)
        middle = len(inner) / 2
        order = sorted(inner, key=lambda i: ((i - inner[0]) % 2, abs(i - inner[0] - middle)))
        return frozenset(order[:count])

    def part_without(self, left_out: Blocks) -> PartialForward:
        """The blocks of the target without these, made once."""
        if left_out not in self.parts:
            blocks = [i for i in range(self.target.info.layers) if i not in left_out]
            self.parts[left_out] = partial_forward(self.target, blocks)
        return self.parts[left_out]

    def search_of(self, seq: Sequence) -> Search:
        """The search of the sequence's cache salt; the oldest of many is forgotten."""
        if seq.cache_salt not in self.searches:
            first = self.first_choice()
            if len(self.searches) == SALTS:
                del self.searches[next(iter(self.searches))]
            self.searches[seq.cache_salt] = Search(self.target.info.layers, first, first, self.trials)
        return self.searches[seq.cache_salt]

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        works = [self.begin(seq, budget) for seq, budget in step.undrafted if not seq.embeds]
        going = [work for work in works if work.draft.open]
        while going:
            for blocks in {id(work.blocks): work.blocks for work in going}.values():
                self.extend(step, blocks, [work for work in going if work.blocks is blocks])
            going = [work for work in going if work.draft.open]
        for work in works:
            step.propose(work.draft.seq, self.drafter.finish(work.draft))

    def begin(self, seq: Sequence, budget: int) -> Work:
        draft = PartialDraft(seq, min(budget, self.draft_max), AcceptanceEstimate())
        blocks = self.part_without(self.search_of(seq).left_out)
        return Work(draft, blocks, seq.evaluated, seq.tokens[seq.evaluated :])

    def extend(self, step: DraftStep, blocks: PartialForward, works: Iterable[Work]) -> None:
        """Add a token to every draft of a subset, in one forward."""
        works = [*works]
        logits = blocks.forward([(work.draft.seq, work.start, work.tokens) for work in works])
        step.report_cost(forwards=1, rows=sum(len(work.tokens) for work in works))
        for work, row in zip(works, logits, strict=True):
            work.start += len(work.tokens)
            work.tokens = [self.drafter.extend(step, work.draft, row)]

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        changed: dict[int, Search] = {}
        for seq, result in step.draft_results:
            accepted, search = len(result.full_verdict.path), self.search_of(seq)
            search.learn(min(result.drafted, accepted + 1), accepted)
            changed[id(search)] = search
        for search in changed.values():
            search.choose()
