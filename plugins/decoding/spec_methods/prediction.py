"""Drafts from the text that a request predicts, as in OpenAI's Predicted Outputs: an edit repeats most of its input.

The place in the prediction follows the output token by token. Where the output differs, the place is found again by the
last tokens of the output: the occurrence nearest after the place that was lost.
"""

from __future__ import annotations

from pathlib import Path

import attrs
from attrs.validators import and_, ge, le, optional

from spec_core import Compat, Draft, DraftStep, Needs, Refusal, RollbackStep, Sequence, StashKey, Target, hookimpl
from spec_core.toolkit import AcceptanceEstimates, encode_part, match_estimates

DECAY = 0.98
"""Decay of the counts at each draft, so that old rejections lose weight."""
PRIOR_WEIGHT = 2.0
P_MIN = 0.3
"""Default that holds if neither the user nor a controller sets one."""
START = 16
"""Tokens of agreement that the beginning of a prediction counts as, before the output has any."""


@attrs.define(eq=False)
class Place:
    """Position of the output of one request in its prediction.

    number: the request's, since a slot outlives it. at: index of the token that should come next, -1 where it is lost.
    lost: the index at which it was lost. match: tokens before it that agree. read: output tokens that were followed.
    """

    number: int
    prediction: list[int]
    n_min: int
    at: int = 0
    lost: int = 0
    match: int = START
    drafted: int = START
    read: int = 0
    estimates: AcceptanceEstimates = attrs.field(factory=lambda: match_estimates(PRIOR_WEIGHT, DECAY))
    index: dict[tuple[int, ...], list[int]] = attrs.field(factory=dict)

    def follow(self, output: list[int]) -> None:
        """Read the output tokens that are new."""
        for end in range(self.read + 1, len(output) + 1):
            self._next(output, end)
        self.read = len(output)

    def _next(self, output: list[int], end: int) -> None:
        if 0 <= self.at < len(self.prediction) and self.prediction[self.at] == output[end - 1]:
            self.at, self.match = self.at + 1, self.match + 1
            return
        if self.at >= 0:
            self.lost = self.at
        self.at, self.match = self._found(output[max(0, end - self.n_min) : end]), self.n_min

    def _found(self, last: list[int]) -> int:
        """Index after the occurrence of these tokens that is nearest after the lost place, -1 if there is none."""
        if len(last) < self.n_min:
            return -1
        places = self._places().get(tuple(last), [])
        return next((at for at in places if at > self.lost), places[-1] if places else -1)

    def _places(self) -> dict[tuple[int, ...], list[int]]:
        """{n-gram: indices after its occurrences}, made when the place is lost for the first time."""
        if not self.index:
            for end in range(self.n_min, len(self.prediction) + 1):
                self.index.setdefault(tuple(self.prediction[end - self.n_min : end]), []).append(end)
        return self.index

    def ahead(self, longest: int, p_min: float) -> list[int]:
        """The tokens that should come next, while their joint chance is at least ``p_min``."""
        if not 0 <= self.at < len(self.prediction):
            return []
        self.drafted = self.match
        self.estimates.of(self.match).fade()
        chance, survival, n = self.estimates.value(self.match), 1.0, 0
        while n < longest and self.at + n < len(self.prediction) and survival * chance >= p_min:
            survival, n = survival * chance, n + 1
        return self.prediction[self.at : self.at + n]


@attrs.define(eq=False)
class Prediction:
    """Drafts from the text that a request predicts; a request without a prediction gets no draft."""

    file: str | None = attrs.field(
        default=None, metadata={"help": "text that is predicted for requests without a prediction of their own"}
    )
    n_min: int = attrs.field(
        default=2, validator=[ge(1), le(32)], metadata={"help": "tokens that must agree to find the place again"}
    )
    draft_max: int = attrs.field(
        default=32, validator=[ge(1), le(256)], metadata={"help": "max draft length", "off": 256}
    )
    p_min: float | None = attrs.field(
        default=None,
        validator=optional(and_(ge(0.0), le(1.0))),
        metadata={
            "help": "draft while its estimated acceptance probability is above this; 0.3, or a controller's price",
            "off": 0.0,
        },
    )
    place: StashKey[Place] = attrs.field(factory=StashKey, init=False)
    eog: frozenset[int] = attrs.field(default=frozenset(), init=False)
    usual: list[int] = attrs.field(factory=list, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        self.eog = target.info.eog
        problem = None if self.file is None else problem_of(Path(self.file), target)
        return Compat(
            needs=Needs(predictions=self.file is None),
            drafts={"deterministic"},
            forwards=lambda k: 0,
            refusals=[Refusal(problem, "give a text file in UTF-8")] if problem else [],
            load=self._load,
            learns="length",
        )

    def _load(self, target: Target) -> None:
        if self.file is not None and target.tokenizer is not None:
            self.usual = encode_part(target.tokenizer, Path(self.file).read_text("utf-8"))

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            if not (prediction := seq.prediction or self.usual):
                continue
            place = self._place(seq, prediction)
            place.follow(seq.tokens[seq.prompt_len :])
            if ids := place.ahead(min(budget, self.draft_max), step.price(seq, self.p_min, P_MIN)):
                step.propose(seq, Draft(until_end(ids, self.eog)))

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, part in step.draft_results:
            place = seq.stash[self.place]
            place.estimates.of(place.drafted).learn(part.drafted, len(part.full_verdict.path))

    def _place(self, seq: Sequence, prediction: list[int]) -> Place:
        place = seq.stash.get(self.place)
        if place is None or place.number != seq.number:
            place = seq.stash[self.place] = Place(seq.number, prediction, self.n_min)
        return place


def problem_of(file: Path, target: Target) -> str | None:
    """Why the file cannot be a prediction, or None."""
    if target.tokenizer is None:
        return f"{target.info.name} has no tokenizer, so the text of {file} cannot be its prediction"
    try:
        file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return f"the prediction {file} cannot be read: {error}"
    return None


def until_end(ids: list[int], eog: frozenset[int]) -> list[int]:
    """Cut after a token that ends the text."""
    return next((ids[: i + 1] for i, token in enumerate(ids) if token in eog), ids)
