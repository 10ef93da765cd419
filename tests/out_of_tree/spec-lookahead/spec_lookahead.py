"""Lookahead decoding (Fu et al., 2402.02057): a window of guesses is evaluated with every step, and n-grams that appear
in it are drafted when the text comes to their first token.

The window has ``levels`` rows of ``width`` guesses. The first level is a chain after the text; guess i of every other
level follows guess i of the level before. They are probes: no rule sees them, and statistics count drafted n-grams::

    spec generate -m zoo:pico --method lookahead -p "def add(a, b):"
"""

from __future__ import annotations

import attrs
import torch
from attrs.validators import ge, le

from spec_core import Compat, Draft, DraftStep, Needs, Probes, RollbackStep, Sequence, StashKey, Target, hookimpl


@attrs.define(eq=False)
class Window:
    """The guesses of one sequence, by level, and the n-grams that were seen: {first token: rest, newest first}."""

    seq: Sequence
    levels: list[list[int]]
    grams: dict[int, list[tuple[int, ...]]] = attrs.field(factory=dict)

    def probes(self, before: int) -> Probes:
        """Rows after the text. before: draft tokens of the sequence."""
        width = len(self.levels[0])
        parents = [-1, *(before + i for i in range(width - 1))]
        parents += [before + i for i in range(width * (len(self.levels) - 1))]
        return Probes([token for level in self.levels for token in level], parents)

    def learn(self, fresh: list[int], kept: int) -> None:
        """Move every level up. fresh: the tokens after the last level. kept: n-grams of a token that are kept."""
        for i, token in enumerate(fresh):
            first, *rest = (level[i] for level in self.levels)
            gram, known = (*rest, token), self.grams.setdefault(first, [])
            self.grams[first] = [gram, *(one for one in known if one != gram)][:kept]
        self.levels = [*self.levels[1:], fresh]


@attrs.define(eq=False)
class Lookahead:
    """Draft n-grams of a window of guesses."""

    width: int = attrs.field(default=5, validator=[ge(1), le(64)], metadata={"help": "guesses of a level"})
    levels: int = attrs.field(default=3, validator=[ge(1), le(8)], metadata={"help": "levels of the window"})
    grams_max: int = attrs.field(default=3, validator=[ge(1), le(64)], metadata={"help": "n-grams drafted at once"})
    window: StashKey[Window] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        needs = Needs(probes=self.width * self.levels, trees=target.info.trees, logits=True)
        return Compat(needs=needs, drafts={"deterministic"}, learns="tokens", forwards=lambda k: 0)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            window = self.open_window(seq)
            grams = window.grams.get(seq.tokens[-1], [])
            if (draft := merge_grams(grams if step.trees else grams[:1], budget, step.nodes(seq))) is not None:
                step.propose(seq, draft)
            if step.probe_room(seq) >= self.width * self.levels:
                step.probe(seq, window.probes(step.part(seq).drafted))

    def open_window(self, seq: Sequence) -> Window:
        """The window of a sequence; a new one is filled from the prompt."""
        window = seq.stash.get(self.window)
        if window is None or window.seq is not seq:
            text = [max(token, 0) for token in seq.tokens[: seq.prompt_len]]
            guess = lambda i, j: text[(i * 7 + j) % len(text)]
            levels = [[guess(i, j) for i in range(self.width)] for j in range(self.levels)]
            window = seq.stash[self.window] = Window(seq, levels)
        return window

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq in step.verdicts:
            if not seq.wants(step.plugin) or (rows := step.probe_rows(seq)) is None:
                continue
            last = rows.logits[-self.width :].float()
            if seq.sampling.temperature > 0 and not step.private:
                depths = range(self.levels, self.levels + self.width)
                noise = torch.stack([step.noise(seq, depth) for depth in depths]).to(last.device)
                last = last.double() / seq.sampling.temperature + noise
            self.open_window(seq).learn(last.argmax(-1).tolist(), self.grams_max)


def merge_grams(grams: list[tuple[int, ...]], depth: int, nodes: int) -> Draft | None:
    """A tree of n-grams whose equal beginnings are drafted once."""
    at: dict[tuple[int, ...], int] = {(): -1}
    for gram in grams:
        for end in range(1, min(len(gram), depth) + 1):
            if gram[:end] not in at and len(at) <= nodes:
                at[gram[:end]] = len(at) - 1
            elif gram[:end] not in at:
                break
    paths = [path for path in at if path]
    if not paths:
        return None
    parents = [at[path[:-1]] for path in paths]
    chain = parents == list(range(-1, len(paths) - 1))
    return Draft([path[-1] for path in paths], parents=None if chain else parents)
