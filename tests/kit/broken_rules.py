"""Acceptance rules that break one promise each, beside a healthy one."""

from __future__ import annotations

import attrs
import numpy as np
import torch

from spec_core import Compat, StashKey, Verdict, hookimpl
from spec_core.sampling.choose import adjust_row, support
from spec_core.sampling.noise import gumbel
from spec_core.toolkit.choosing import walk_draft

OWN = 9
"""Domain word of the noise of these rules."""


@attrs.define(eq=False)
class Matches:
    """Healthy: draws the target's token at every node, by noise of its own, and follows the child that equals it."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="private")

    @hookimpl
    def accept(self, step) -> None:
        for seq in step.undecided:
            step.decide(seq, self.verdict(step, seq))

    def verdict(self, step, seq) -> Verdict:
        return walk_draft(step.part(seq).draft, lambda row: self.choice(step, seq, row))

    def choice(self, step, seq, row: int) -> int:
        draft = step.part(seq).draft
        t = seq.output_position + (draft.depths[row - 1] if row else 0)
        if seq.sampling.temperature == 0:
            return int(self.adjust_row(step, seq, row).argmax())
        ids, z = support(self.adjust_row(step, seq, row), seq.sampling)
        return int(ids[(z + self.noise(step, seq, t)[ids]).argmax()])

    def adjust_row(self, step, seq, row: int):
        return adjust_row(step.logits(seq)[row], seq.sampling, step.history(seq, row), seq.prompt_len)

    def noise(self, step, seq, t: int):
        return gumbel(seq.seed, t, step.target.info.vocab, seq.number, OWN)


class ForgetsWhoAsks(Matches):
    """Draws by noise of seed and position alone, the same for every request of a seed."""

    def noise(self, step, seq, t: int):
        return gumbel(seq.seed, t, step.target.info.vocab, seq.noise_stream, OWN)


class LeavesThePath(Matches):
    """Keeps every draft of a tree that equals the target's token at its parent, kept or not."""

    def verdict(self, step, seq):
        draft = step.part(seq).draft
        if draft is None or draft.parents is None:
            return super().verdict(step, seq)
        right = [i for i, p in enumerate(draft.parents) if draft.ids[i] == self.choice(step, seq, 1 + p)]
        return Verdict(right, self.choice(step, seq, 1 + right[-1] if right else 0))


class ReadsRowsOfAll(Matches):
    """Declares that it judges every proposal, but treats each one that is not deterministic as sampled."""

    def verdict(self, step, seq):
        draft = step.part(seq).draft
        if draft is not None and draft.proposal != "deterministic":
            draft.probs.sum(-1)
        return super().verdict(step, seq)


class KeepsTheFirst(Matches):
    """Keeps the first draft, whatever it is."""

    def verdict(self, step, seq):
        verdict = super().verdict(step, seq)
        if verdict.path or not step.part(seq).drafted:
            return verdict
        return Verdict((0,), self.choice(step, seq, 1))


class SteersToEvenIds(Matches):
    """Healthy: raises the logits of even ids, with and without drafts, and says so."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(steers="prefers even ids")

    def adjust_row(self, step, seq, row: int):
        adjusted = super().adjust_row(step, seq, row).clone()
        adjusted[::2] += 4.0
        return adjusted

    def noise(self, step, seq, t: int):
        return gumbel(seq.seed, t, step.target.info.vocab, seq.noise_stream)


class SteersToDrafts(SteersToEvenIds):
    """Says that it steers, and keeps the first draft."""

    def verdict(self, step, seq):
        verdict = super().verdict(step, seq)
        if verdict.path or not step.part(seq).drafted:
            return verdict
        return Verdict((0,), self.choice(step, seq, 1))


class TakesANumber(SteersToEvenIds):
    """Healthy: raises the logits of even ids by a number of the request."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(steers="prefers even ids", request_values={"by": self.check_number})

    def check_number(self, value) -> float:
        if type(value) not in (int, float) or not 0 <= value <= 9:
            raise ValueError("give a number from 0 to 9")
        return float(value)

    def number(self, step, seq) -> float:
        return step.request_values(seq).get("by", 1.0)

    def adjust_row(self, step, seq, row: int):
        adjusted = Matches.adjust_row(self, step, seq, row).clone()
        adjusted[::2] += 4 * self.number(step, seq)
        return adjusted


class LooksForANumber(TakesANumber):
    """Looks for the number in whatever the request has."""

    def check_number(self, value) -> float:
        return super().check_number(value["number"] if isinstance(value, dict) else value)


class KeepsTheNumberOfTheSlot(TakesANumber):
    """Keeps the number that the first text of a slot had."""

    def number(self, step, seq) -> float:
        return seq.stash.setdefault(self.kept, super().number(step, seq))

    kept = StashKey()


class SaysItsNoiseIsShared(Matches):
    """Draws by noise of its own and calls it the shared one."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="shared")


class Shared(Matches):
    """Healthy: the same by the noise that plain decoding uses."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="shared")

    def noise(self, step, seq, t):
        return gumbel(seq.seed, t, step.target.info.vocab, seq.noise_stream)


class CallsSharedNoiseItsOwn(Shared):
    """Decides by the shared noise and declares private noise."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="private")


class Rejects(Matches):
    """Healthy: token by token rejection sampling of chains."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges={"sampled"}, noise="private")

    def verdict(self, step, seq):
        draft, path = step.part(seq).draft, []
        p = torch.softmax(step.logits(seq).double() / (seq.sampling.temperature or 1.0), -1)
        for i in range(step.part(seq).drafted):
            if step.coins(seq, i + 1)[i] * draft.probs[i, draft.ids[i]] >= p[i, draft.ids[i]]:
                return Verdict(path, self.draw(step, seq, self.residual(p[i], draft.probs[i])))
            path.append(i)
        return Verdict(path, self.draw(step, seq, p[-1]))

    def residual(self, p, q):
        return (p - q).clamp_min(0)

    def draw(self, step, seq, weights) -> int:
        return int((weights.log() + self.noise(step, seq, seq.output_position)).argmax())


class HasNoResidual(Rejects):
    """Draws from the target's own distribution after a rejection, not from what is left of it."""

    def residual(self, p, q):
        return p


class ReadsRawRows(Matches):
    """Forgets what the user asked for."""

    def adjust_row(self, step, seq, row):
        return step.logits(seq)[row]


class ForgetsThePrefix(Matches):
    """Counts penalties over committed text only."""

    def adjust_row(self, step, seq, row):
        return adjust_row(step.logits(seq)[row], seq.sampling, seq.tokens, seq.prompt_len)


class PenalisesPromptsToo(Shared):
    """Counts the prompt where only the output is meant."""

    def adjust_row(self, step, seq, row):
        return adjust_row(step.logits(seq)[row], seq.sampling, step.history(seq, row), 0)


class ThrowsDice(Matches):
    """Draws by everybody's generator."""

    def noise(self, step, seq, t):
        return torch.from_numpy(np.random.gumbel(size=step.target.info.vocab))


@attrs.define(eq=False)
class HasOneGenerator(Matches):
    """Draws by one generator for all sequences: who is asked before changes the text."""

    random: np.random.Generator = attrs.field(factory=lambda: np.random.default_rng(0), init=False)

    def noise(self, step, seq, t):
        return torch.from_numpy(self.random.gumbel(size=step.target.info.vocab))


class DecidesEverybody(Matches):
    """Goes over the parts of the step instead of what is undecided."""

    @hookimpl
    def accept(self, step) -> None:
        for part in step.parts:
            step.decide(part.seq, self.verdict(step, part.seq))


class JudgesNothing(Matches):
    """Names no kind of proposal that it could judge."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(judges=(), noise="private")


@attrs.define(eq=False)
class RemembersSequences(Matches):
    """Has a dictionary of sequences on the instance."""

    seen: dict = attrs.field(factory=dict, init=False)

    def verdict(self, step, seq):
        self.seen[seq] = super().verdict(step, seq)
        return self.seen[seq]


class Raises(Matches):
    """Raises when something was drafted."""

    def verdict(self, step, seq):
        assert not step.part(seq).drafted, "not expected"
        return super().verdict(step, seq)


@attrs.define(eq=False)
class RefusesItsOwnDefault(Matches):
    """Its setting's default is none of its type."""

    width: int = 2.5
