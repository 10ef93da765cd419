"""Copies the continuation of an earlier occurrence of the last tokens: prompt lookup with a verified index.

Idea: Saxena, "Prompt Lookup Decoding", 2023. The index learns every committed token and compares tokens before it
drafts. The draft's length depends on the match's length and on the acceptance of such drafts in this sequence.
"""

from __future__ import annotations

import math
from collections import Counter

import attrs
from attrs.validators import ge, le

from spec_core import Compat, Draft, DraftStep, RollbackStep, Rows, Sequence, StashKey, Target, hookimpl
from spec_core.toolkit import AcceptanceEstimates, match_estimates, p_min_field

DECAY = 0.98
"""Decay of the counts at each look-up, so that old rejections lose weight."""
PRIOR_WEIGHT = 2.0
P_MIN = 0.3
"""Default that holds if neither the user nor a controller sets one."""

Log = list[int]
Place = tuple[Log, int]
"""A log of tokens and the index of what followed an occurrence of a key."""


@attrs.define(eq=False)
class Index:
    """Positions after every n-gram of one length, latest last. Keys are the tokens themselves."""

    n: int
    ways: int
    entries_max: int
    places: dict[tuple[int, ...], list[Place]] = attrs.field(factory=dict)

    def learn(self, log: Log, start: int) -> None:
        """Add the n-grams that end at or after ``start``, even if they begin before it."""
        n, places = self.n, self.places
        for end in range(max(start + 1, n), len(log) + 1):
            key = tuple(log[end - n : end])
            known = places.pop(key, None)
            if known is None:
                known = []
            elif len(known) >= self.ways:
                del known[0]
            known.append((log, end))
            places[key] = known
        while len(places) > self.entries_max:
            del places[next(iter(places))]

    def find(self, history: list[int]) -> list[Place]:
        return self.places.get(tuple(history[-self.n :]), [])


def new_estimates() -> AcceptanceEstimates:
    """Acceptance estimates by match length."""
    return match_estimates(PRIOR_WEIGHT, DECAY)


@attrs.define(eq=False)
class NgramState:
    """Data of one sequence, and of the next one in its slot if that continues its text.

    number: the sequence's. matched: match length of each current draft, by the leaf that it follows.
    """

    index: Index
    number: int
    log: Log = attrs.field(factory=list)
    estimates: AcceptanceEstimates = attrs.field(factory=new_estimates)
    matched: dict[int, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Ngram:
    """Drafts the tokens that followed an earlier occurrence of the last n-gram; needs no model."""

    n_min: int = attrs.field(default=2, validator=[ge(1), le(32)], metadata={"help": "min match length", "off": 1})
    n_max: int = attrs.field(default=16, validator=[ge(1), le(64)], metadata={"help": "max match length"})
    draft_max: int = attrs.field(
        default=12, validator=[ge(1), le(256)], metadata={"help": "max draft length", "off": 256}
    )
    p_min: float | None = p_min_field("draft while its estimated acceptance probability is above this; 0.3")
    shared: bool = attrs.field(
        default=False,
        metadata={"help": "use the texts of all sequences without a cache salt; others can notice it by timing"},
    )
    ways: int = attrs.field(default=8, validator=ge(1), metadata={"help": "occurrences kept per n-gram"})
    entries_max: int = attrs.field(
        default=65536, validator=ge(1), metadata={"help": "n-grams kept; the oldest are dropped first"}
    )
    extend: bool = attrs.field(default=False, metadata={"help": "extend the drafts of methods named before it"})
    memory: StashKey[NgramState] = attrs.field(factory=StashKey, init=False)
    common: Index = attrs.field(init=False)
    eog: frozenset[int] = attrs.field(default=frozenset(), init=False)

    def __attrs_post_init__(self) -> None:
        if self.n_max < self.n_min:
            raise ValueError(f"n_max = {self.n_max} is below n_min = {self.n_min}")
        self._begin()

    def _begin(self, target: Target | None = None) -> None:
        """Clear shared data, which belongs to one run: later drafts could meet the noise of their tokens."""
        self.common = self._index()

    def _index(self) -> Index:
        return Index(self.n_min, self.ways, self.entries_max)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        self.eog = target.info.eog
        return Compat(
            drafts={"deterministic"},
            extends=self.extend,
            forwards=lambda k: 0,
            load=self._begin,
            shares=True,
            catches_up=not self.shared,
            learns="length",
            shares_learning=self.shared,
        )

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, draft, leaf, budget in step.leaves if self.extend else ():
            text = [*seq.tokens, *(draft.ids[i] for i in draft.ancestry(leaf))]
            if ids := self._continuation(step, seq, text, budget, leaf):
                step.extend(seq, Draft(ids), leaf)
        for seq, budget in step.undrafted:
            if ids := self._continuation(step, seq, seq.tokens, budget):
                step.propose(seq, Draft(ids))

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, part in step.draft_results:
            memory = seq.stash[self.memory]
            memory.estimates.of(memory.matched[part.leaf]).learn(part.drafted, len(part.full_verdict.path))

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, _ in rows.by_sequence():
            self._catch_up(seq)

    def _catch_up(self, seq: Sequence) -> NgramState:
        """The data of a sequence, after all of its tokens but the last, which nothing follows yet."""
        memory = seq.stash.get(self.memory)
        if memory is None or memory.number != seq.number:
            memory = seq.stash[self.memory] = self._start(seq, memory)
        start, end = len(memory.log), len(seq.tokens) - 1
        if start < end:
            memory.log += seq.tokens[start:end]
            memory.index.learn(memory.log, start)
        return memory

    def _start(self, seq: Sequence, before: NgramState | None) -> NgramState:
        """State of a sequence that begins, maybe with rows of one ``before`` it."""
        if before is None or before.log != seq.tokens[: len(before.log)]:
            is_shared = self.shared and not seq.cache_salt
            return NgramState(self.common if is_shared else self._index(), seq.number)
        before.number = seq.number
        return before

    def _continuation(self, step: DraftStep, seq: Sequence, text: list[int], budget: int, leaf: int = -1) -> list[int]:
        """Tokens that may follow ``text``: committed tokens, and drafted ones up to ``leaf``."""
        memory = self._catch_up(seq)
        places = memory.index.find(text)
        if not places:
            return []  # as in most steps, so this path is kept short
        return self._draft(memory, places, text, budget, step.price(seq, self.p_min, P_MIN), leaf)

    def _draft(
        self,
        state: NgramState,
        places: list[Place],
        text: list[int],
        budget: int,
        p_min: float = P_MIN,
        leaf: int = -1,
    ) -> list[int]:
        """The continuation of the best match, as long as its estimated acceptance allows."""
        best = best_match(places, text, self.n_max)
        if best is None:
            return []
        match, (log, at) = best
        state.matched[leaf] = match
        state.estimates.of(match).fade()
        length = min(budget, self.draft_max, max_length(state.estimates.value(match), p_min))
        ids = continuation(text if log is state.log else log, at, length, own=log is state.log)
        return cut_at_end(ids, self.eog)


def best_match(places: list[Place], history: list[int], longest: int) -> tuple[int, Place] | None:
    """The longest verified match; ties go to the most frequent continuation, then to the most recent."""
    tail = history[-longest:]
    verified = [(length, place) for place in places if (length := agreement(place, tail))]
    if not verified:
        return None
    if len(verified) == 1:
        return verified[0]
    longest = max(length for length, _ in verified)
    latest_first = [place for length, place in reversed(verified) if length == longest and place[1] < len(place[0])]
    if not latest_first:
        place = next(place for length, place in reversed(verified) if length == longest)
        return longest, place
    votes = Counter(log[at] for log, at in latest_first)
    return longest, max(latest_first, key=lambda place: votes[place[0][place[1]]])


def agreement(place: Place, tail: list[int]) -> int:
    """Number of tokens before the place that equal the last ones; 0 for stale places."""
    log, at = place
    n = min(at, len(tail))
    if n == 0 or at > len(log):
        return 0
    if log[at - n : at] == tail[-n:]:  # often all of them: one comparison takes less time than a loop
        return n
    n = 0
    while log[at - 1 - n] == tail[-1 - n]:
        n += 1
    return n


def max_length(survival: float, p_min: float) -> int:
    """Max tokens whose joint acceptance probability is at least ``p_min``."""
    if survival >= 1 or p_min <= 0:
        return 1 << 30
    return int(math.log(p_min) / math.log(survival)) if p_min < 1 else 0


def continuation(text: list[int], at: int, length: int, own: bool) -> list[int]:
    """Tokens from ``at`` on; past the end of the own text it continues with the draft itself, as in a period."""
    ids = text[at : at + length]
    while own and ids and len(ids) < length:
        ids.append(ids[at + len(ids) - len(text)])
    return ids


def cut_at_end(ids: list[int], eog: frozenset[int]) -> list[int]:
    """Cut after a token that ends the text, and before a row given as an embedding."""
    for i, token in enumerate(ids):
        if token < 0:
            return ids[:i]
        if token in eog:
            return ids[: i + 1]
    return ids
