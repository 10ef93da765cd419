"""Choice of drafted tokens from rows of logits, and the end of a draft, for drafters that draft token by token.

A draft continues while all of it is likely to be accepted: the product over its tokens of their probability times the
drafter's acceptance rate so far in this sequence must not fall below ``p_min``, or the controller's price.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.kinds import Proposal
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft
from spec_core.sampling import native
from spec_core.sampling.choose import adjust_row, draw_token, most_likely, support
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.reference import NoiseKey, rank_ids
from spec_core.toolkit.acceptance import AcceptanceEstimate
from spec_core.toolkit.constrained import allowed_mask
from spec_core.toolkit.place import COMMITTED, BranchPoint
from spec_core.toolkit.tree import DraftLimits, DraftNoise

UNCHANGED = Sampling()
SampleMode = Literal["auto", "greedy", "sampled"]
TINY = 1e-9
"""Lower bound of the chance of the tokens before a draft: a threshold is divided by it."""


@attrs.define(eq=False)
class PartialDraft:
    """A draft while it grows: its tokens, their probabilities, and their rows if a rule reads ``probs``.

    Create it with sequence, budget and estimate; a TokenDrafter extends it while it is ``open``::

        draft = PartialDraft(seq, min(budget, self.draft_max), estimate)
        while draft.open:
            self.drafter.extend(step, draft, logits)  # the row after the tokens so far
        step.propose(seq, self.drafter.finish(draft))

    survival: estimated probability that all of it is accepted, with the tokens before it. open: whether another token
    is worth its forward. place: where it begins, if it extends another method's draft.
    """

    seq: Sequence
    budget: int
    estimate: AcceptanceEstimate
    ids: list[int] = attrs.field(factory=list)
    confidence: list[float] = attrs.field(factory=list)
    probs: list[Tensor] = attrs.field(factory=list)
    survival: float = 1.0
    open: bool = True
    place: BranchPoint = COMMITTED

    @property
    def path(self) -> list[int]:
        """All drafted tokens of its path: other methods' before it, then its own."""
        return [*self.place.path, *self.ids]


@attrs.frozen
class TokenDrafter:
    """Chooses tokens from logits [V], greedily or by the request's own sampling and noise.

    p_min: acceptance probability below which a draft ends; None means the controller's price, or ``usual`` without one.
    With the same noise the drafted token is often the one that the target draws (2408.07978). sample: ``sampled``
    and ``auto`` draw if the request does.
    """

    p_min: float | None
    sample: SampleMode = "auto"
    usual: float = 0.3

    def price(self, step: DraftStep, seq: Sequence) -> float:
        """The survival below which a draft for this sequence ends in this step."""
        return step.price(seq, self.p_min, self.usual)

    def extend(self, step: DraftStep, draft: PartialDraft, row: Tensor, estimate: float | None = None) -> int:
        """Add the token chosen from ``row``; end the draft if it is not likely enough to be accepted.

        The token is kept: its forward is done, and one more row is cheap for the target. A row of NaN counts as
        probability 0. row: [V] logits. estimate: the drafter's own chance that the token is accepted, in place of the
        token's probability and the acceptance rate so far.
        """
        mask = allowed_mask(draft.seq, draft.path)
        token, chance, probs = (
            self._sample(step, draft, row, mask)
            if self.samples(draft.seq)
            else (*most_likely(adjust_row(row, UNCHANGED, [], 0, mask)[None], 1)[0][0], None)
        )
        draft.ids.append(token)
        draft.confidence.append(chance if estimate is None else estimate)
        if probs is not None:
            draft.probs.append(probs)
        draft.survival *= chance * draft.estimate.value if estimate is None else estimate
        full = len(draft.ids) >= draft.budget or token in draft.seq.stop.tokens
        draft.open = draft.survival >= self.price(step, draft.seq) and not full
        return token

    def chooser(
        self, step: DraftStep, seq: Sequence, longest: int, ranks: bool = False, point: BranchPoint = COMMITTED
    ) -> Any:
        """A chooser of a draft's tokens where its forwards are made, in place of ``extend``, or of ``candidates`` if it
        ``ranks`` the tokens of a tree: a capsule of ``spec_chooser`` (sampling/native/chooser.h), for one
        draft of paths of at most ``longest`` tokens that begin at ``point``. None without the extension, and for a
        request with a constraint, whose masks are made between the forwards.
        """
        if native.module is None or seq.matcher is not None:
            return None
        first, t, onward = self._drawing(step, seq, point)
        terms = None if ranks and not self.uses_target_noise(step, seq) else seq.sampling._terms
        text = [*seq.tokens, *point.path] if point.path else seq.tokens, seq.prompt_len
        return native.module.chooser(terms, first, t, onward, *text, step.target.info.vocab, longest)

    def _drawing(self, step: DraftStep, seq: Sequence, point: BranchPoint) -> tuple[NoiseKey, int, tuple[int, int]]:
        """Key and output position of a draft's first noise, and what is added to position and domain for the next."""
        (first, t), (second, then) = (step.drawing(seq, len(point.path) + i, point.branch) for i in (0, 1))
        return first, t, (then - t, second[2] - first[2])

    def limits(self, step: DraftStep, draft: PartialDraft, chooses: Callable[[Sampling], bool]) -> DraftLimits | None:
        """Limits of a chain that is made in one call; None if its tokens must be chosen here, as under a constraint.

        chooses: whether who makes it draws tokens with such a sampling.
        """
        longest, chooser, noise, sampling = draft.budget, None, None, draft.seq.sampling
        if draft.seq.matcher is not None:
            return None
        if self.samples(draft.seq):
            able = chooses(sampling)
            chooser = self.chooser(step, draft.seq, longest, point=draft.place) if able else None
            if chooser is None:
                return None
            noise = DraftNoise(sampling.temperature, *self._drawing(step, draft.seq, draft.place), agreement)
        p_min = self.price(step, draft.seq) / max(draft.survival, TINY)  # of its own tokens alone
        return DraftLimits(longest, longest, 1, p_min, draft.seq.stop.tokens, draft.estimate.value, chooser, noise)

    def keeps_probs(self, step: DraftStep, seq: Sequence) -> bool:
        """Whether a rule reads the rows that a chain of this sequence is drawn from."""
        return step.wants_probs and self.samples(seq)

    def add_tokens(self, draft: PartialDraft, ids: list[int], chances: list[float], rows: Tensor | None) -> None:
        """Add all tokens of a draft made in one call. rows: [n, V] logits that sampled tokens were drawn from, if
        a rule reads ``probs``; else None.
        """
        for token, row in zip(ids, rows if rows is not None else (), strict=False):
            draft.probs.append(self._probs(draft, row, token, None))
            draft.ids.append(token)
        draft.ids, draft.confidence, draft.open = ids, chances, False

    def samples(self, seq: Sequence) -> bool:
        """Whether tokens for this sequence are drawn, instead of the most likely ones."""
        return seq.sampling.temperature > 0 and self.sample != "greedy"

    @property
    def proposals(self) -> frozenset[str]:
        """Kinds of proposal of chains, for ``Compat.drafts``."""
        return frozenset({"greedy", "sampled", "unknown"} if self.sample != "greedy" else {"deterministic"})

    @property
    def tree_proposals(self) -> frozenset[str]:
        """The same for a method that drafts trees too: the most likely tokens under noise that it cannot read."""
        return self.proposals | {"deterministic"}

    def finish(self, draft: PartialDraft) -> Draft:
        """The finished draft, with probs if they were kept."""
        if draft.probs:
            return Draft(draft.ids, probs=torch.stack(draft.probs), confidence=draft.confidence)
        proposal: Proposal = "unknown" if self.samples(draft.seq) else "deterministic"
        return Draft(draft.ids, proposal=proposal, confidence=draft.confidence)

    def candidates(
        self, step: DraftStep, seq: Sequence, before: list[int], row: Tensor, count: int
    ) -> list[tuple[int, float]]:
        """Tokens that may follow committed text and the drafted tokens ``before``, most likely first, each with its
        probability; max ``count``, or fewer if the row has fewer candidates. row: [V] logits.

        If the target's noise can be read, they are ordered by logit plus noise.
        """
        mask = allowed_mask(seq, before)
        if not self.uses_target_noise(step, seq):
            row = adjust_row(row, UNCHANGED, [], 0, mask)
            return [(token, chance) for token, chance in most_likely(row[None], count)[0] if chance > 0]
        row = adjust_row(row, seq.sampling, seq.tokens + before, seq.prompt_len, mask)
        if not math.isfinite(row.max()):
            return []
        ids, z = support(row, seq.sampling)
        score = z + step.noise(seq, len(before), ids=ids).to(z.device)
        at = rank_ids(score.cpu().numpy(), count + 1)
        values = [value for value in score[at].tolist() if value > -math.inf]
        return list(zip(ids[at].tolist(), chances(values), strict=False))[:count]

    def uses_target_noise(self, step: DraftStep, seq: Sequence) -> bool:
        """Whether drafts use the noise with which the target chooses."""
        return self.samples(seq) and not step.private

    def _sample(
        self, step: DraftStep, draft: PartialDraft, row: Tensor, mask: np.ndarray | None
    ) -> tuple[int, float, Tensor | None]:
        seq, sampling = draft.seq, draft.seq.sampling
        path = draft.path
        source, t = step.drawing(seq, len(path), draft.place.branch)
        token, logit, apart = draw_token(row, sampling, source, t, (seq.tokens, seq.prompt_len, path), mask)
        chance = agreement(apart) if math.isfinite(logit) else 0.0
        return token, chance, self._probs(draft, row, token, mask) if step.wants_probs else None

    def _probs(self, draft: PartialDraft, row: Tensor, token: int, mask: np.ndarray | None) -> Tensor:
        """[V] distribution that ``token`` was drawn from after the draft so far; a point mass if nothing was drawn."""
        seq, sampling = draft.seq, draft.seq.sampling
        row = adjust_row(row, sampling, seq.tokens + draft.path, seq.prompt_len, mask)
        if not math.isfinite(row.max()):
            return torch.eye(1, len(row), device=row.device).roll(token)[0]
        ids, z = support(row, sampling)
        probs = torch.zeros(len(row), dtype=z.dtype, device=z.device)
        return probs.scatter_(0, ids, torch.softmax(z, -1))


def agreement(gap: float) -> float:
    """Probability that the target chooses the same token with the same noise, by the difference of the two best scores.

    A larger difference means that the two models would have to differ more to disagree. Measured with
    small models at temperature 0.8: 0.34 below 0.25, 0.51 at 0.75, 0.63 at 1.5, 0.83 at 3, 0.97 at 6.
    """
    return 1 - 0.68 * math.exp(-gap / 2.4)


def chances(scores: list[float]) -> list[float]:
    """Probability of each token that the target chooses it with the same noise, from the draft's scores, best first."""
    if not scores:
        return []
    best = scores[0]
    first = agreement(best - scores[1] if len(scores) > 1 else math.inf)
    return [first, *(0.3 * math.exp((score - best) / 2) for score in scores[1:])]
