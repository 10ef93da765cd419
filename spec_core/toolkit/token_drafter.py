"""For drafters that choose token by token from rows of logits: how a token is drawn, and when a draft ends.

A draft goes on while all of it is likely to be accepted: the product over its tokens of their probability times the
drafter's acceptance rate in this sequence so far must be at least ``p_min``, or the controller's price.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import attrs
import torch
from torch import Tensor

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Draft, Proposal
from spec_core.sampling import native
from spec_core.sampling.choose import adjust, drawn, likeliest, support
from spec_core.toolkit.acceptance import AcceptanceEstimate

SampleMode = Literal["auto", "greedy", "sampled"]


@attrs.define(eq=False)
class PartialDraft:
    """A draft while it grows: tokens so far, their chances, and the rows they were drawn from where a rule reads them.

    Made with sequence, budget and estimate, extended by a TokenDrafter while it is ``open``::

        draft = PartialDraft(seq, min(budget, self.draft_max), estimate)
        while draft.open:
            self.drafter.extend(step, draft, logits)  # the row after the tokens so far
        step.propose(seq, self.drafter.made(draft))

    survival: chance that all of it is accepted, by its own estimate. open: whether another token is worth its forward.
    """

    seq: Sequence
    budget: int
    estimate: AcceptanceEstimate
    ids: list[int] = attrs.field(factory=list)
    confidence: list[float] = attrs.field(factory=list)
    probs: list[Tensor] = attrs.field(factory=list)
    survival: float = 1.0
    open: bool = True


@attrs.frozen
class TokenDrafter:
    """Chooses tokens from logits [V], greedily or by the request's own sampling and noise.

    p_min: the survival below which a draft ends; None is the controller's price, and ``usual`` where there is none.
    With the same noise the drafted token usually is the one the target draws too (2408.07978). sample: ``sampled``
    and ``auto`` draw where the request does.
    """

    p_min: float | None
    sample: SampleMode = "auto"
    usual: float = 0.3

    def price(self, step: Step, seq: Sequence) -> float:
        """The survival below which a draft for this sequence ends in this step."""
        return step.price(seq, self.p_min, self.usual)

    def extend(self, step: Step, draft: PartialDraft, row: Tensor) -> int:
        """Add the token chosen from ``row``; the draft ends with it when it is not likely enough to be accepted.

        The token stays: its forward is done, and one more row costs the target little. A row of NaN counts as
        probability 0. row: [V] logits.
        """
        token, chance, probs = (
            self._sampled(step, draft, row) if self.samples(draft.seq) else (*likeliest(row[None], 1)[0][0], None)
        )
        draft.ids.append(token)
        draft.confidence.append(chance)
        if probs is not None:
            draft.probs.append(probs)
        draft.survival *= chance * draft.estimate.value
        full = len(draft.ids) >= draft.budget or token in draft.seq.stop.tokens
        draft.open = draft.survival >= self.price(step, draft.seq) and not full
        return token

    def chooser(self, step: Step, draft: PartialDraft) -> Any:
        """What chooses all tokens of a sampled draft where its forwards are made, in place of ``extend``: a capsule of
        ``spec_chooser`` (sampling/native/chooser.h), for one draft of at most its budget. None without the extension.
        """
        if native.module is None:
            return None
        seq = draft.seq
        (first, t), (second, then) = step.drawing(seq, 0), step.drawing(seq, 1)
        onward = then - t, second[2] - first[2]
        text = seq.tokens, seq.prompt_len
        return native.module.chooser(seq.sampling._terms, first, t, onward, *text, step.target.info.vocab, draft.budget)

    def take(self, draft: PartialDraft, ids: list[int], chances: list[float], rows: Tensor | None) -> None:
        """All tokens of a draft that was made in one call. rows: [n, V] logits that sampled ones were drawn from, where
        a rule reads ``probs``; else None.
        """
        for token, row in zip(ids, rows if rows is not None else (), strict=False):
            draft.probs.append(self._probs(draft, row, token))
            draft.ids.append(token)
        draft.ids, draft.confidence, draft.open = ids, chances, False

    def samples(self, seq: Sequence) -> bool:
        """Whether tokens for this sequence are drawn, not the most likely ones."""
        return seq.sampling.temperature > 0 and self.sample != "greedy"

    @property
    def proposals(self) -> frozenset[str]:
        """For ``Compat.drafts``."""
        return frozenset({"deterministic", "sampled", "unknown"} if self.sample != "greedy" else {"deterministic"})

    def made(self, draft: PartialDraft) -> Draft:
        """The finished draft, with the rows it was drawn from where they were kept."""
        if draft.probs:
            return Draft(draft.ids, probs=torch.stack(draft.probs), confidence=draft.confidence)
        proposal: Proposal = "unknown" if self.samples(draft.seq) else "deterministic"
        return Draft(draft.ids, proposal=proposal, confidence=draft.confidence)

    def likeliest(
        self, step: Step, seq: Sequence, before: list[int], row: Tensor, count: int
    ) -> list[tuple[int, float]]:
        """Tokens that may follow committed text and the drafted ones ``before``, the likeliest first, each with its
        chance; at most ``count``, fewer where fewer have any. row: [V] logits.

        Where the target chooses by noise that can be read, they are the first by the sum of both.
        """
        if not self.follows(step, seq):
            return [(token, chance) for token, chance in likeliest(row[None], count)[0] if chance > 0]
        row = adjust(row, seq.sampling, seq.tokens + before, seq.prompt_len)
        if not math.isfinite(row.max()):
            return []
        ids, z = support(row, seq.sampling)
        score = z + step.noise(seq, len(before), ids=ids).to(z.device)
        best, at = score.topk(min(count + 1, len(ids)))
        values = [value for value in best.tolist() if value > -math.inf]
        return list(zip(ids[at].tolist(), chances(values), strict=False))[:count]

    def follows(self, step: Step, seq: Sequence) -> bool:
        """Whether drafts read the noise by which the target chooses."""
        return self.samples(seq) and not step.private

    def _sampled(self, step: Step, draft: PartialDraft, row: Tensor) -> tuple[int, float, Tensor | None]:
        seq, sampling = draft.seq, draft.seq.sampling
        source, t = step.drawing(seq, len(draft.ids))
        token, logit, apart = drawn(row, sampling, source, t, (seq.tokens, seq.prompt_len, draft.ids))
        chance = agreement(apart) if math.isfinite(logit) else 0.0
        return token, chance, self._probs(draft, row, token) if step.wants_probs else None

    def _probs(self, draft: PartialDraft, row: Tensor, token: int) -> Tensor:
        """[V] that ``token`` was drawn from ``row`` by, behind the draft so far; all on it where nothing was drawn."""
        seq, sampling = draft.seq, draft.seq.sampling
        row = adjust(row, sampling, seq.tokens + draft.ids, seq.prompt_len)
        if not math.isfinite(row.max()):
            return torch.eye(1, len(row), device=row.device).roll(token)[0]
        ids, z = support(row, sampling)
        probs = torch.zeros(len(row), dtype=z.dtype, device=z.device)
        return probs.scatter_(0, ids, torch.softmax(z, -1))


def agreement(gap: float) -> float:
    """Chance that the target chooses the same token under the same noise, from the distance of the two best scores.

    Near ties go either way; the larger the distance, the further the two models would have to be apart. Measured with
    small models at temperature 0.8: 0.34 below 0.25, 0.51 at 0.75, 0.63 at 1.5, 0.83 at 3, 0.97 at 6.
    """
    return 1 - 0.68 * math.exp(-gap / 2.4)


def chances(scores: list[float]) -> list[float]:
    """Chance of each token that the target chooses it under the same noise, from the draft's scores, best first."""
    if not scores:
        return []
    best = scores[0]
    first = agreement(best - scores[1] if len(scores) > 1 else math.inf)
    return [first, *(0.3 * math.exp((score - best) / 2) for score in scores[1:])]
