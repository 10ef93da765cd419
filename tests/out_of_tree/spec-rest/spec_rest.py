"""Draft a tree of what follows the end of the text in a corpus (REST, He et al., 2311.08252).

The datastore is a suffix array of the corpus read backwards: its positions, in the order of the tokens before them.
Positions after equal tokens are neighbours in it, and two binary searches find them::

    spec generate -m zoo:pico --method rest=corpus.txt -p "def add(a, b):"
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
from attrs.validators import ge

from spec_core import Compat, Draft, DraftStep, Needs, Refusal, Target, hookimpl
from spec_core.toolkit import TreeLimits, TreeNode, confidences, grow_tree, p_min_field


@attrs.define(eq=False)
class Continuation(TreeNode):
    """A token that followed a match. ends: the positions of the corpus after it."""

    ends: list[int]


@attrs.define(eq=False)
class Rest:
    """Drafts the most frequent continuations of the longest match of the text's end in a corpus."""

    file: Path | None = attrs.field(default=None, metadata={"help": "the corpus, a text file"})
    match_max: int = attrs.field(default=16, validator=ge(1), metadata={"help": "longest match"})
    draft_max: int = attrs.field(default=10, validator=ge(1), metadata={"help": "longest path", "off": 256})
    nodes_max: int = attrs.field(default=24, validator=ge(1), metadata={"help": "most tokens of a tree", "off": 256})
    p_min: float | None = p_min_field("leave out continuations that are less frequent; 0.1")
    corpus: list[int] = attrs.field(factory=list, init=False)
    ends: list[int] = attrs.field(factory=list, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        refusals = []
        if self.file is None or not self.file.is_file():
            refusals.append(Refusal(f"{self.file or 'no corpus'} is not a file", "name a text: --method rest=FILE"))
        if target.tokenizer is None:
            refusals.append(Refusal(f"{target.info.name} has no tokenizer to read a corpus", "use another target"))
        return Compat(needs=Needs(trees=True), refusals=refusals, load=self.load, catches_up=True)

    def load(self, target: Target) -> None:
        assert self.file and target.tokenizer  # compat refuses without them
        self.corpus = target.tokenizer.encode(self.file.read_text("utf-8"), bos=False)
        self.ends = sorted(range(1, len(self.corpus)), key=partial(self.before, count=self.match_max))

    def before(self, end: int, count: int) -> list[int]:
        """The tokens before a position of the corpus, the nearest first."""
        return self.corpus[max(0, end - count) : end][::-1]

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            match = Continuation(-1, -1, 0, 1.0, self.matches(seq.tokens[-self.match_max :][::-1]))
            depth, nodes = min(budget, self.draft_max), min(step.nodes(seq), self.nodes_max)
            limits = TreeLimits(depth, nodes, nodes, step.price(seq, self.p_min, 0.1), seq.stop.tokens)
            following = partial(self.following, p_min=limits.p_min)
            if tree := grow_tree(following(match, -1), following, limits):
                ids, parents = [node.token for node in tree], [node.parent for node in tree]
                step.propose(seq, Draft(ids, parents=parents, confidence=confidences(tree)))

    def matches(self, end: list[int]) -> list[int]:
        """Positions of the corpus after the longest match. end: the last tokens of the text, the last one first."""
        low, high, longest = 0, len(self.ends), list[int]()
        for count in range(1, len(end) + 1):
            key, low_before, high_before = partial(self.before, count=count), low, high
            low = bisect_left(self.ends, end[:count], low_before, high_before, key=key)
            high = bisect_right(self.ends, end[:count], low_before, high_before, key=key)
            longest = self.ends[low:high] or longest
        return longest

    def following(self, node: Continuation, at: int, p_min: float) -> Iterator[Continuation]:
        """Tokens that followed a node of the tree, each with its share of all that did. at: index of the node."""
        places = defaultdict(list)
        for end in node.ends:
            if end < len(self.corpus):
                places[self.corpus[end]].append(end + 1)
        for token, ends in places.items():
            chance = node.chance * len(ends) / (len(node.ends) + 1)
            if chance >= p_min:
                yield Continuation(token, at, node.depth + 1, chance, ends)
