"""Drafts the continuation of the longest earlier match of the text's end, while its estimated probability is high.

Suffix decoding: Oliaro et al., "SuffixDecoding", 2411.04975; the index is an automaton as in SAM decoding, Hu et al.,
2411.10666. Counts give the probability of a path, corrected by how often such drafts were accepted in this sequence.

Example: the text ends with ``a b``, which occurred four times before: three times ``c`` followed and once ``d``. The
draft begins with ``c``, probability 3/4, and continues after ``a b c`` while the product is at least ``p_min``; a tree
also has ``d``.
"""

from __future__ import annotations

import attrs
from attrs.validators import ge, le

from spec_core import Compat, Draft, DraftStep, Needs, RollbackStep, Rows, Sequence, StashKey, Target, hookimpl
from spec_core.toolkit import AcceptanceEstimates, TreeLimits, confidences, p_min_field, tested_nodes
from spec_methods.suffix.continuations import Node, grow_suffix_tree, new_estimates
from spec_methods.suffix.store import Store, Track

P_MIN = 0.3
"""Default that holds if neither the user nor a controller sets one."""


@attrs.define(eq=False)
class SuffixState:
    """Data of one sequence, and of the next one in its slot if that continues its text.

    own: its text. common: its position among the outputs of all sequences, if shared. number: the sequence's.
    tokens: its own; the first ``written`` are learnt. drafted: the current drafts, by the leaf that each follows.
    """

    own: Track
    common: Track | None
    number: int
    tokens: list[int]
    estimates: AcceptanceEstimates = attrs.field(factory=new_estimates)
    written: int = 0
    drafted: dict[int, list[Node]] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Suffix:
    """Drafts from the longest earlier match in the text, optionally also in earlier outputs; needs no model."""

    match_max: int = attrs.field(default=32, validator=[ge(1), le(256)], metadata={"help": "max match length"})
    draft_max: int = attrs.field(
        default=16, validator=[ge(1), le(256)], metadata={"help": "max draft length", "off": 256}
    )
    p_min: float | None = p_min_field("min estimated probability of a drafted path; 0.3")
    width: int = attrs.field(
        default=1, validator=[ge(1), le(16)], metadata={"help": "max children of a token; above 1 a tree is drafted"}
    )
    shared: bool = attrs.field(
        default=False,
        metadata={"help": "also use earlier outputs without a cache salt; others can notice it by timing"},
    )
    tokens_max: int = attrs.field(
        default=32768, validator=ge(2), metadata={"help": "tokens kept per sequence, and of all shared outputs"}
    )
    extend: bool = attrs.field(default=False, metadata={"help": "extend the drafts of methods named before it"})
    memory: StashKey[SuffixState] = attrs.field(factory=StashKey, init=False)
    common: Store | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Target | None = None) -> None:
        """Clear shared data: in a second run a draft could meet the noise that its tokens were chosen with."""
        self.common = Store(self.tokens_max, self.match_max) if self.shared else None

    @hookimpl
    def compat(self, target: Target) -> Compat:
        trees = self.width > 1 and target.info.trees
        return Compat(
            shares=True,
            needs=Needs(trees=trees),
            drafts={"deterministic"},
            extends=self.extend,
            forwards=lambda k: 0,
            load=self._begin,
            catches_up=not self.shared,
            learns="tokens" if self.shared or self.width > 1 else "length",
            shares_learning=self.shared,
        )

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, draft, leaf, budget in step.leaves:
            path = [draft.ids[i] for i in draft.ancestry(leaf)]
            if nodes := self._ahead(seq, path, leaf, self._limits(step, seq, budget, len(draft))):
                step.extend(seq, self._draft(nodes), leaf)
        for seq, budget in step.undrafted:
            if nodes := self._ahead(seq, [], -1, self._limits(step, seq, budget)):
                step.propose(seq, self._draft(nodes))

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, part in step.draft_results:
            memory = seq.stash[self.memory]
            learn_path(memory.estimates, memory.drafted[part.leaf], part.full_verdict.path)

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, _ in rows.by_sequence():
            self._catch_up(seq)

    def _contribute(self, track: Track, tokens: list[int], prompt: int) -> None:
        """Share outputs, not prompts; the first ``prompt`` tokens belong to the prompt."""
        prompt = max(0, prompt)
        track.read(tokens[:prompt])
        track.write(tokens[prompt:])

    def _catch_up(self, seq: Sequence) -> SuffixState:
        """The data of a sequence, after all of its tokens but the last, which nothing follows yet."""
        memory = seq.stash.get(self.memory)
        if memory is None or memory.number != seq.number:
            memory = seq.stash[self.memory] = self._start(seq, memory)
        start, end = memory.written, len(seq.tokens) - 1
        if start < end:
            tokens, memory.written = seq.tokens[start:end], end
            memory.own.write(tokens)
            if memory.common is not None:
                self._contribute(memory.common, tokens, seq.prompt_len - start)
        return memory

    def _start(self, seq: Sequence, before: SuffixState | None) -> SuffixState:
        """State of a sequence that begins, maybe with rows of one ``before`` it: an automaton cannot remove tokens."""
        if before is None or before.tokens[: before.written] != seq.tokens[: before.written]:
            own, common = Store(self.tokens_max, self.match_max), None if seq.cache_salt else self.common
            return SuffixState(Track(own), None if common is None else Track(common), seq.number, seq.tokens)
        before.number, before.tokens = seq.number, seq.tokens
        return before

    def _limits(self, step: DraftStep, seq: Sequence, budget: int, drafted: int = 0) -> TreeLimits:
        """drafted: tokens that other methods drafted in this step."""
        depth = min(budget, self.draft_max)
        branching = step.trees and self.width > 1
        nodes = step.nodes(seq) - drafted if branching else depth
        p_min = step.price(seq, self.p_min, P_MIN)
        return TreeLimits(depth, nodes, self.width if branching else 1, p_min, seq.stop.tokens)

    def _ahead(self, seq: Sequence, path: list[int], leaf: int, limits: TreeLimits) -> list[Node]:
        """The best draft of the sources: with the most expected accepted tokens, then from the first source.

        path: drafted tokens before it.
        """
        memory = self._catch_up(seq)
        tracks = [memory.own] if memory.common is None else [memory.own, memory.common]
        matches = [pair for track in tracks for pair in track.ahead([seq.tokens[-1], *path])]
        offers = [grow_suffix_tree(automaton, match, memory.estimates, limits) for automaton, match in matches]
        best = offers[0] if len(offers) == 1 else max(offers, key=lambda nodes: sum(node.chance for node in nodes))
        memory.drafted[leaf] = best
        return best

    def _draft(self, nodes: list[Node]) -> Draft:
        tokens = [node.token for node in nodes]
        confidence = confidences(nodes)
        chain = self.width == 1 or all(node.parent == i - 1 for i, node in enumerate(nodes))
        parents = None if chain else [node.parent for node in nodes]
        return Draft(tokens, parents=parents, confidence=confidence)


def learn_path(estimates: AcceptanceEstimates, nodes: list[Node], path: tuple[int, ...]) -> None:
    """Count accepted tokens against the number that the counts predicted."""
    for node, right in tested_nodes(nodes, path):
        estimates.learn(node.match, right, node.share)
