"""What a head is worth: how many tokens a step would bring on held-out prompts, at temperature 0.

The target's own greedy answers are written once. A draft is accepted where it is the answer's next token, so a walk
over them gives what a run with this head would: the last known token, drafts, the accepted ones and the next token.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from spec_train.lessons import Lesson
from spec_train.pupils import Pupil


@attrs.frozen
class Marks:
    """tokens_per_step: tokens over steps, of all answers together. accepted: per position of a draft, the share of
    drafts accepted there among those tested there, i.e. accepted up to it."""

    tokens_per_step: float
    accepted: tuple[float, ...]

    def __str__(self) -> str:
        positions = " ".join(f"{a:.2f}" for a in self.accepted)
        return f"{self.tokens_per_step:.2f} tokens per step, accepted by position {positions}"


@attrs.define(eq=False)
class Exam:
    """Lessons of held-out answers, made once."""

    lessons: list[Lesson]

    def mark(self, pupil: Pupil) -> Marks:
        tally = Tally(pupil.depth)
        for lesson in self.lessons:
            tally.walk(pupil.accepted(lesson), max(1, lesson.start), len(lesson.tokens))
        return tally.marks()


@attrs.define
class Tally:
    """Counts of a walk; position i is the i-th token of a draft."""

    depth: int
    steps: int = 0
    tokens: int = 0
    tested: list[int] = attrs.field(init=False)
    kept: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tested, self.kept = [0] * self.depth, [0] * self.depth

    def walk(self, accepted: Sequence[int], first: int, length: int) -> None:
        """first: position of the first known token of the answer. As in a run the last token of all is not drafted."""
        last = first
        while last < length - 1:
            drafted = min(self.depth, length - 2 - last)
            kept = min(accepted[last], drafted)
            for i in range(min(drafted, kept + 1)):
                self.tested[i] += 1
                self.kept[i] += i < kept
            self.steps, self.tokens, last = self.steps + 1, self.tokens + kept + 1, last + kept + 1

    def marks(self) -> Marks:
        shares = (kept / max(1, tested) for kept, tested in zip(self.kept, self.tested, strict=True))
        return Marks(self.tokens / max(1, self.steps), tuple(shares))
