"""A suffix automaton with counts, extended token by token.

Blumer et al., "The smallest automaton recognizing the subwords of a text", 1985: a state represents all substrings
that end at the same positions, ``link`` leads to the next shorter one that also ends elsewhere. It holds several texts
at once. Substrings of at most ``match_max + 1`` tokens are counted exactly.

Most states have one transition, and only others have a dict: with two dicts for every token, the garbage collector
would stop generation for milliseconds after a prompt.
"""

from __future__ import annotations

import attrs

ROOT = 0
Match = tuple[int, int]
"""A state, and the length of the matched suffix of its substring."""
NOTHING: Match = (ROOT, 0)


@attrs.define(eq=False)
class End:
    """The end of a growing text: the states of the whole text, and of its last ``match_max + 1`` tokens."""

    whole: int = ROOT
    recent: Match = NOTHING


@attrs.define(eq=False)
class Automaton:
    """Max two states and three transitions per token; amortised O(1) per token, and O(match_max) for counts.

    next: {token: state} of every state that has several transitions. token, into: of one that has a single one, -1 and
    ``ROOT`` for none. length: of its longest substring. count: how often a substring occurred.
    latest: time of its last occurrence, in tokens ever written here.
    """

    match_max: int
    size: int = 0
    next: list[dict[int, int] | None] = attrs.field(factory=lambda: [None])
    token: list[int] = attrs.field(factory=lambda: [-1])
    into: list[int] = attrs.field(factory=lambda: [ROOT])
    link: list[int] = attrs.field(factory=lambda: [-1])
    length: list[int] = attrs.field(factory=lambda: [0])
    count: list[int] = attrs.field(factory=lambda: [0])
    latest: list[int] = attrs.field(factory=lambda: [-1])

    def follow(self, match: Match, token: int, longest: int) -> Match:
        """The longest match, up to ``longest`` tokens, after one more token."""
        state, n = self._current_state(match)
        link, length = self.link, self.length
        there = self.after(state, token)
        while state and not there:
            state = link[state]
            n = length[state]
            there = self.after(state, token)
        return self._current_state((there, min(n + 1, longest))) if there else NOTHING

    def open(self, match: Match) -> Match:
        """The longest suffix of a match that has a continuation."""
        state, n = self._current_state(match)
        while state and not self.into[state]:
            state = self.link[state]
            n = self.length[state]
        return state, n

    def shorter(self, match: Match) -> Match:
        """The longest suffix of a match that also occurred elsewhere."""
        state = self.link[match[0]]
        return state, self.length[state]

    def _current_state(self, match: Match) -> Match:
        """The current state of the last n tokens, as states are split while the automaton grows."""
        state, n = match
        link, length = self.link, self.length
        while state and length[link[state]] >= n:
            state = link[state]
        return state, n

    def push(self, end: End, token: int) -> None:
        """Append one token to a text."""
        end.whole = self._extend(end.whole, token)
        end.recent = self.follow(end.recent, token, self.match_max + 1)
        state, link, count, latest = end.recent[0], self.link, self.count, self.latest
        while state:
            count[state] += 1
            latest[state] = self.size
            state = link[state]
        self.size += 1

    def _extend(self, last: int, token: int) -> int:
        """The state of a whole text plus one token."""
        if self.after(last, token):
            return self._exact(last, token)
        state = self._state(self.length[last] + 1, ROOT, 0)
        while last >= ROOT and not self.after(last, token):
            self._lead(last, token, state)
            last = self.link[last]
        if last >= ROOT:
            self.link[state] = self._exact(last, token)
        return state

    def _exact(self, state: int, token: int) -> int:
        """The state after ``token`` with exactly this length; split off if the existing one is longer."""
        there = self.after(state, token)
        if self.length[there] == self.length[state] + 1:
            return there
        clone = self._state(self.length[state] + 1, self.link[there], self.count[there])
        following = self.next[there]
        self.next[clone] = None if following is None else dict(following)
        self.token[clone], self.into[clone] = self.token[there], self.into[there]
        self.link[there] = clone
        while state >= ROOT and self.after(state, token) == there:
            self._lead(state, token, clone)
            state = self.link[state]
        return clone

    def _state(self, length: int, link: int, count: int) -> int:
        self.next.append(None)
        self.token.append(-1)
        self.into.append(ROOT)
        self.length.append(length)
        self.link.append(link)
        self.count.append(count)
        self.latest.append(self.size)
        return len(self.next) - 1

    def after(self, state: int, token: int) -> int:
        """The state after one more token, ``ROOT`` where there is none."""
        following = self.next[state]
        if following is not None:
            return following.get(token, ROOT)
        return self.into[state] if self.token[state] == token else ROOT

    def _lead(self, state: int, token: int, into: int) -> None:
        """The state after a token, from now on."""
        following = self.next[state]
        if following is not None:
            following[token] = into
        elif self.token[state] in (token, -1):
            self.token[state], self.into[state] = token, into
        else:
            self.next[state] = {self.token[state]: self.into[state], token: into}

    def following(self, state: int, width: int) -> list[tuple[int, float]]:
        """(token, share) of the continuations of a state: by frequency, then most recent; max ``width``."""
        choices = self.next[state]
        if choices is None:
            return [(self.token[state], 1.0)] if self.into[state] else []
        count, latest = self.count, self.latest
        total = sum(count[s] for s in choices.values())
        ranked = sorted(choices, key=lambda token: (count[choices[token]], latest[choices[token]]), reverse=True)
        return [(token, count[choices[token]] / total) for token in ranked[:width]]
