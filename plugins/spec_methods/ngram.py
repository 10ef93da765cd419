"""Copy what followed an earlier occurrence of the last tokens: prompt lookup with a verified index.

Idea: Saxena, "Prompt Lookup Decoding", 2023; the index learns every committed token, compares tokens before it drafts,
and takes its length from evidence: how long the match is, and how drafts of such matches fared in this sequence.
"""

from __future__ import annotations

import math
from collections import Counter, deque

import attrs
from attrs.validators import and_, ge, le, optional

from spec_core import Compat, Draft, Rows, Sequence, StashKey, Step, Target, hookimpl
from spec_core.toolkit import AcceptanceEstimates, match_estimates

DECAY = 0.98
"""What a bucket's evidence keeps per look-up: a bad round lowers a score and is forgotten."""
PRIOR_WEIGHT = 2.0
P_MIN = 0.3
"""Where neither the user nor a controller gives one."""

Log = list[int]
Place = tuple[Log, int]
"""A log of tokens and the index of what followed an occurrence of a key."""


@attrs.define(eq=False)
class Index:
    """From every n-gram of one length to the places that follow it, latest last. Keys are the tokens themselves."""

    n: int
    ways: int
    most: int
    places: dict[tuple[int, ...], deque[Place]] = attrs.field(factory=dict)

    def learn(self, log: Log, start: int) -> None:
        """Enter the n-grams that end at or after ``start``; those across the border are among them."""
        for end in range(max(start + 1, self.n), len(log) + 1):
            key = tuple(log[end - self.n : end])
            places = self.places.pop(key, None) or deque(maxlen=self.ways)
            places.append((log, end))
            self.places[key] = places
        while len(self.places) > self.most:
            del self.places[next(iter(self.places))]

    def find(self, history: list[int]) -> deque[Place]:
        return self.places.get(tuple(history[-self.n :]), deque())


def evidence() -> AcceptanceEstimates:
    """How drafts of a match length fared."""
    return match_estimates(PRIOR_WEIGHT, DECAY)


@attrs.define(eq=False)
class Memory:
    """What is kept about one sequence. matched: match length of the draft under way."""

    index: Index
    log: Log = attrs.field(factory=list)
    evidence: AcceptanceEstimates = attrs.field(factory=evidence)
    matched: int = 0


@attrs.define(eq=False)
class Ngram:
    """Drafts from the sequence's own text; needs nothing."""

    n_min: int = attrs.field(
        default=2, validator=[ge(1), le(32)], metadata={"help": "shortest match that drafts", "off": 1}
    )
    n_max: int = attrs.field(default=16, validator=[ge(1), le(64)], metadata={"help": "longest match looked for"})
    draft_max: int = attrs.field(default=12, validator=[ge(1), le(256)], metadata={"help": "longest draft", "off": 256})
    p_min: float | None = attrs.field(
        default=None,
        validator=optional(and_(ge(0.0), le(1.0))),
        metadata={
            "help": "draft while its estimated survival is above this; default: 0.3, or a controller's price",
            "off": 0.0,
        },
    )
    shared: bool = attrs.field(
        default=False, metadata={"help": "look into the texts of all sequences of the run; visible to others in timing"}
    )
    ways: int = attrs.field(default=8, validator=ge(1), metadata={"help": "occurrences kept per n-gram"})
    entries_max: int = attrs.field(default=65536, validator=ge(1), metadata={"help": "n-grams kept; oldest go first"})
    memory: StashKey[Memory] = attrs.field(factory=StashKey, init=False)
    common: Index = attrs.field(init=False)
    eog: frozenset[int] = attrs.field(default=frozenset(), init=False)

    def __attrs_post_init__(self) -> None:
        if self.n_max < self.n_min:
            raise ValueError(f"n_max = {self.n_max} is below n_min = {self.n_min}")
        self._begin()

    def _begin(self, target: Target | None = None) -> None:
        """What is shared is of one run: drafts that outlived it could meet the coins they came from."""
        self.common = self._index()

    def _index(self) -> Index:
        return Index(self.n_min, self.ways, self.entries_max)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        self.eog = target.info.eog
        return Compat(drafts={"deterministic"}, forwards=lambda k: 0, load=self._begin)

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, budget in step.undrafted:
            memory = seq.stash.get(self.memory)
            if memory is None:
                continue
            if ids := self._ahead(memory, seq.tokens, budget, step.price(seq, self.p_min, P_MIN)):
                step.propose(seq, Draft(ids))

    @hookimpl
    def rollback(self, step: Step) -> None:
        for seq, part in step.judged:
            memory = seq.stash[self.memory]
            memory.evidence.of(memory.matched).learn(part.drafted, len(part.uncut.path))

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, span in rows.by_sequence():
            memory = self._memory(seq, span.start)
            memory.log[span.start :] = span.tokens
            memory.index.learn(memory.log, span.start)

    def _memory(self, seq: Sequence, start: int) -> Memory:
        """A text that goes on differently than before is learned anew; only a shared index still knows the old one."""
        memory = seq.stash.get(self.memory)
        if memory is None or start < len(memory.log):
            memory = Memory(self.common if self.shared else self._index(), log=seq.tokens[:start])
            memory.index.learn(memory.log, 0)
            seq.stash[self.memory] = memory
        return memory

    def _ahead(self, memory: Memory, history: list[int], budget: int, p_min: float = P_MIN) -> list[int]:
        """The draft: what followed the best match, as long as the evidence carries."""
        best = best_match(memory.index.find(history), history, self.n_max)
        if best is None:
            return []
        match, (log, at) = best
        memory.matched = match
        memory.evidence.of(match).fade()
        length = min(budget, self.draft_max, carried(memory.evidence.value(match), p_min))
        ids = follow(history if log is memory.log else log, at, length, own=log is memory.log)
        return until(ids, self.eog)


def best_match(places: deque[Place], history: list[int], most: int) -> tuple[int, Place] | None:
    """The longest verified match; among equals the most frequent continuation, then the most recent."""
    verified = [(length, place) for place in places if (length := agreement(place, history, most))]
    if not verified:
        return None
    longest = max(length for length, _ in verified)
    latest_first = [place for length, place in reversed(verified) if length == longest and place[1] < len(place[0])]
    if not latest_first:
        place = next(place for length, place in reversed(verified) if length == longest)
        return longest, place
    votes = Counter(log[at] for log, at in latest_first)
    return longest, max(latest_first, key=lambda place: votes[place[0][place[1]]])


def agreement(place: Place, history: list[int], most: int) -> int:
    """How many tokens before the place equal the end of the history; stale places agree on nothing."""
    log, at = place
    n = 0
    while n < most and n < at <= len(log) and n < len(history) and log[at - 1 - n] == history[-1 - n]:
        n += 1
    return n


def carried(survival: float, p_min: float) -> int:
    """Most tokens whose joint survival stays at or above ``p_min``."""
    if survival >= 1 or p_min <= 0:
        return 1 << 30
    return int(math.log(p_min) / math.log(survival)) if p_min < 1 else 0


def follow(text: list[int], at: int, length: int, own: bool) -> list[int]:
    """Tokens from ``at`` on; past the end of the own text the draft itself continues, as in a period."""
    ids = text[at : at + length]
    while own and ids and len(ids) < length:
        ids.append(ids[at + len(ids) - len(text)])
    return ids


def until(ids: list[int], eog: frozenset[int]) -> list[int]:
    """Nothing after a token that ends the text, and nothing that is no token (a row given as an embedding)."""
    for i, token in enumerate(ids):
        if token < 0:
            return ids[:i]
        if token in eog:
            return ids[: i + 1]
    return ids
