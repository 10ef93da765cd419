"""Tokens per step that a head would reach on held-out prompts, at temperature 0.

The target's greedy answers are generated once. A draft is accepted if it is the answer's next token, so a walk over the
answers gives the result of a run with this head: the last known token, the draft, the accepted part and one more token.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from spec_train.data.samples import Sample
from spec_train.heads.student import Student


@attrs.frozen
class Result:
    """tokens_per_step: tokens over steps, of all answers together. accepted: for each position of a draft, the share
    of accepted drafts among those tested there, i.e. accepted up to it."""

    tokens_per_step: float
    accepted: tuple[float, ...]

    def __str__(self) -> str:
        positions = " ".join(f"{a:.2f}" for a in self.accepted)
        return f"{self.tokens_per_step:.2f} tokens per step, accepted by position {positions}"


@attrs.define(eq=False)
class Evaluation:
    """The samples of held-out answers."""

    samples: list[Sample]

    def run(self, student: Student) -> Result:
        counts = Counts(student.draft_max)
        for sample in self.samples:
            counts.walk(student.accepted_counts(sample), max(1, sample.start), len(sample.tokens))
        return counts.result()


@attrs.define
class Counts:
    """Counts of a walk over answers. Position i is the i-th token of a draft."""

    draft_max: int
    steps: int = 0
    tokens: int = 0
    tested: list[int] = attrs.field(init=False)
    accepted: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tested, self.accepted = [0] * self.draft_max, [0] * self.draft_max

    def walk(self, accepted: Sequence[int], first: int, length: int) -> None:
        """accepted: drafts accepted after each position. first: position of the first known token of the answer. As in
        a run, the very last token is not drafted."""
        last = first
        while last < length - 1:
            drafted = min(self.draft_max, length - 2 - last)
            kept = min(accepted[last], drafted)
            for i in range(min(drafted, kept + 1)):
                self.tested[i] += 1
                self.accepted[i] += i < kept
            self.steps, self.tokens, last = self.steps + 1, self.tokens + kept + 1, last + kept + 1

    def result(self) -> Result:
        shares = (accepted / max(1, tested) for accepted, tested in zip(self.accepted, self.tested, strict=True))
        return Result(self.tokens / max(1, self.steps), tuple(shares))
