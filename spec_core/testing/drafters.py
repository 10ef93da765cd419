"""Drafters that force a pattern of acceptance, for tests without a real method."""

from __future__ import annotations

import random
from collections.abc import Callable, Set

import attrs

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Compat, Draft, Needs
from spec_core.hookspecs import hookimpl


@attrs.define(eq=False)
class Oracle:
    """Drafts the target's own tokens, which are known beforehand, except where they are to be wrong.

    text: {sequence name: its tokens, prompt and output}. right: (i, seq) -> whether draft i of this step is right.
    length: max tokens of a draft. vocab: size of the target's vocabulary. drafts: as in ``Compat``.
    """

    text: dict[str, list[int]]
    right: Callable[[int, Sequence], bool] = lambda i, seq: True
    length: int = 4
    vocab: int = 48
    drafts: Set[str] = frozenset({"deterministic"})

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=self.drafts)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            at = len(seq.tokens)
            ahead = self.text[seq.name][at : at + min(budget, self.length)]
            if ahead:
                ids = [t if self.right(i, seq) else (t + 1) % self.vocab for i, t in enumerate(ahead)]
                step.propose(seq, Draft(ids))


@attrs.define(eq=False)
class RandomTrees:
    """Random trees, sometimes with the right token in them; sometimes no draft. drafts: as in ``Compat``."""

    text: dict[str, list[int]]
    seed: int = 0
    vocab: int = 48
    nodes_max: int = 6
    trees: bool = True
    drafts: Set[str] = frozenset({"deterministic"})
    rng: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=Needs(trees=self.trees), drafts=self.drafts)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            nodes = min(step.nodes(seq), self.rng.randint(0, self.nodes_max))
            if nodes:
                step.propose(seq, self._tree(seq, nodes, budget))

    def _tree(self, seq: Sequence, nodes: int, budget: int) -> Draft:
        depths: list[int] = []
        parents: list[int] = []
        tokens: list[int] = []
        for _ in range(nodes if self.trees else min(nodes, budget)):
            open_nodes = [-1, *(i for i, d in enumerate(depths) if d < budget)]
            parent = self.rng.choice(open_nodes[-2:] if self.trees else open_nodes[-1:])
            depths.append(1 if parent < 0 else depths[parent] + 1)
            token = self._token(seq, depths[-1])
            while (parent, token) in zip(parents, tokens, strict=True):
                token = (token + 1) % self.vocab
            parents.append(parent)
            tokens.append(token)
        return Draft(tokens, parents=parents if self.trees else None)

    def _token(self, seq: Sequence, depth: int) -> int:
        ahead = self.text.get(seq.name, [])
        at = len(seq.tokens) + depth - 1
        if at < len(ahead) and self.rng.random() < 0.6:
            return ahead[at]
        return self.rng.randrange(self.vocab)
