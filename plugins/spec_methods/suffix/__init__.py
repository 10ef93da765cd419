"""Draft what followed the longest earlier match of the text's end, as long as the counts make it likely enough.

Suffix decoding: Oliaro et al., "SuffixDecoding", 2411.04975; the index is an automaton as in SAM decoding, Hu et al.,
2411.10666. Counts give the probability of a path, weighed by how often such drafts were accepted in this sequence.

Example: the text ends with ``a b``, which occurred four times before: three times ``c`` followed and once ``d``. The
draft begins with ``c``, probability 3/4, and goes on after ``a b c`` while the product is at least ``p_min``; a tree
has ``d`` too.
"""

from __future__ import annotations

import attrs
from attrs.validators import and_, ge, le, optional

from spec_core import Compat, Draft, Needs, Rows, Sequence, StashKey, Step, Target, hookimpl
from spec_core.toolkit import AcceptanceEstimates, TreeLimits, tested
from spec_methods.suffix.drafting import Node, evidence, grow
from spec_methods.suffix.store import Store, Track

P_MIN = 0.3
"""Where neither the user nor a controller gives one."""


@attrs.define(eq=False)
class Memory:
    """What is kept about one sequence. own: its text. common: its place among the outputs of all, if shared."""

    own: Track
    common: Track | None
    evidence: AcceptanceEstimates = attrs.field(factory=evidence)
    written: int = 0
    drafted: list[Node] = attrs.field(factory=list)


@attrs.define(eq=False)
class Suffix:
    """Drafts from the sequence's own text and, on request, from earlier outputs; needs nothing."""

    match_max: int = attrs.field(
        default=32, validator=[ge(1), le(256)], metadata={"help": "longest match that is compared"}
    )
    draft_max: int = attrs.field(default=16, validator=[ge(1), le(256)], metadata={"help": "longest draft", "off": 256})
    p_min: float | None = attrs.field(
        default=None,
        validator=optional(and_(ge(0.0), le(1.0))),
        metadata={
            "help": "draft paths that are at least this likely; default: 0.3, or a controller's price",
            "off": 0.0,
        },
    )
    width: int = attrs.field(
        default=1, validator=[ge(1), le(16)], metadata={"help": "most tokens after one; above 1 a tree is drafted"}
    )
    shared: bool = attrs.field(
        default=False, metadata={"help": "look into earlier outputs of the run too; visible to others in timing"}
    )
    tokens_max: int = attrs.field(
        default=32768, validator=ge(2), metadata={"help": "tokens kept per sequence, and of shared outputs"}
    )
    memory: StashKey[Memory] = attrs.field(factory=StashKey, init=False)
    common: Store | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Target | None = None) -> None:
        """Forget what sequences share: in a second run a draft could meet the noise that once chose its tokens."""
        self.common = Store(self.tokens_max, self.match_max) if self.shared else None

    @hookimpl
    def compat(self, target: Target) -> Compat:
        trees = self.width > 1 and target.info.trees
        return Compat(needs=Needs(trees=trees), drafts={"deterministic"}, forwards=lambda k: 0, load=self._begin)

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, budget in step.undrafted:
            memory = seq.stash.get(self.memory)
            if memory is not None and (nodes := self._ahead(memory, seq, self._limits(step, seq, budget))):
                memory.drafted = nodes
                step.propose(seq, self._draft(nodes, step))

    @hookimpl
    def rollback(self, step: Step) -> None:
        for seq, part in step.judged:
            memory = seq.stash[self.memory]
            learn(memory.evidence, memory.drafted, part.uncut.path)

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, span in rows.by_sequence():
            memory = self._memory(seq, span.start)
            memory.own.write(span.tokens)
            if memory.common is not None:
                self._contribute(memory.common, span.tokens, seq.prompt_len - span.start)
            memory.written = span.end

    def _contribute(self, common: Track, tokens: list[int], prompt: int) -> None:
        """Outputs are shared, prompts are not; the first ``prompt`` tokens are of the prompt."""
        prompt = max(0, prompt)
        common.read(tokens[:prompt])
        common.write(tokens[prompt:])

    def _memory(self, seq: Sequence, start: int) -> Memory:
        """A text that goes on differently than before is learned anew: an automaton cannot forget."""
        memory = seq.stash.get(self.memory)
        if memory is None or memory.written != start:
            memory = Memory(
                Track(Store(self.tokens_max, self.match_max)), None if self.common is None else Track(self.common)
            )
            memory.own.write(seq.tokens[:start])
            seq.stash[self.memory] = memory
        return memory

    def _limits(self, step: Step, seq: Sequence, budget: int) -> TreeLimits:
        depth = min(budget, self.draft_max)
        branching = step.trees and self.width > 1
        nodes = step.nodes(seq) if branching else depth
        p_min = step.price(seq, self.p_min, P_MIN)
        return TreeLimits(depth, nodes, self.width if branching else 1, p_min, seq.stop.tokens)

    def _ahead(self, memory: Memory, seq: Sequence, limits: TreeLimits) -> list[Node]:
        """The best of what the sources offer: most tokens expected to be accepted, then the nearest source."""
        tracks = [memory.own] if memory.common is None else [memory.own, memory.common]
        matches = [pair for track in tracks for pair in track.ahead(seq.tokens[-1])]
        offers = [grow(automaton, match, memory.evidence, limits) for automaton, match in matches]
        return max(offers, key=lambda nodes: sum(node.chance for node in nodes), default=[])

    def _draft(self, nodes: list[Node], step: Step) -> Draft:
        tokens = [node.token for node in nodes]
        confidence = [node.chance for node in nodes]
        chain = all(node.parent == i - 1 for i, node in enumerate(nodes))
        parents = None if chain else [node.parent for node in nodes]
        return Draft(tokens, parents=parents, confidence=confidence)


def learn(evidence: AcceptanceEstimates, nodes: list[Node], path: tuple[int, ...]) -> None:
    """What was right against what its counts had promised."""
    for node, right in tested(nodes, path):
        evidence.learn(node.match, right, node.share)
