"""Texts in bounded memory: two automata; the older is dropped when the newer is full."""

from __future__ import annotations

import attrs

from spec_methods.suffix.automaton import NOTHING, Automaton, End, Match


@attrs.define(eq=False)
class Store:
    """Max ``tokens_max`` tokens, in two generations; the older half is dropped first."""

    tokens_max: int
    match_max: int
    generations: list[Automaton] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.generations = [Automaton(self.match_max)]

    def young(self) -> Automaton:
        """The automaton that new tokens are written to."""
        if self.generations[0].size >= max(1, self.tokens_max // 2):
            self.generations = [Automaton(self.match_max), self.generations[0]]
        return self.generations[0]


@attrs.define(eq=False)
class Track:
    """One sequence in a store: the match of its end in each automaton, and where it writes."""

    store: Store
    matches: dict[Automaton, Match] = attrs.field(factory=dict)
    end: End = attrs.field(factory=End)
    writing: Automaton | None = None

    def read(self, tokens: list[int]) -> None:
        """Extend the matches in every generation; a token below 0 (a row given as an embedding) matches nothing."""
        for automaton, match in self._matches().items():
            for token in tokens:
                match = automaton.follow(match, token, automaton.match_max)
            self.matches[automaton] = match

    def write(self, tokens: list[int]) -> None:
        """Extend and learn: every token is matched before it is written, else a text would match itself."""
        for token in tokens:
            automaton = self.store.young()
            for a, match in self._matches().items():
                self.matches[a] = a.follow(match, token, a.match_max)
            if automaton is not self.writing or token < 0:
                self.writing, self.end = automaton, End()
            if token >= 0:
                automaton.push(self.end, token)

    def ahead(self, tokens: list[int]) -> list[tuple[Automaton, Match]]:
        """The matches after more tokens: one that is committed but not evaluated yet, then drafted ones."""
        matches = []
        for automaton, match in self._matches().items():
            for token in tokens:
                match = automaton.follow(match, token, automaton.match_max)
            matches.append((automaton, match))
        return matches

    def _matches(self) -> dict[Automaton, Match]:
        """The matches of the current generations, youngest first."""
        if [*self.matches] != self.store.generations:
            self.matches = {a: self.matches.get(a, NOTHING) for a in self.store.generations}
        return self.matches
