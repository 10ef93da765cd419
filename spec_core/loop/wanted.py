"""What a forward must return for the sequences of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

import attrs

from spec_core.contract.batch import Part
from spec_core.contract.values import Needs


@attrs.define
class Wanted:
    """Leaves out hidden states that are read by none of the plugins that serve a step's sequences.

    by_plugin: {plugin: its needs}. all: those of the run.
    """

    by_plugin: Mapping[str, Needs]
    all: Needs
    _known: dict[frozenset[str], Needs] = attrs.field(factory=dict)

    def __call__(self, parts: Iterable[Part]) -> Needs:
        serving: frozenset[str] = frozenset()
        for part in parts:
            if part.seq.methods is None:
                return self.all
            serving |= part.seq.methods
        found = self._known.get(serving)
        if found is None:
            found = self._known[serving] = self._of(serving)
        return found

    def _of(self, serving: frozenset[str]) -> Needs:
        read = reduce(or_, (self.by_plugin[name] for name in serving if name in self.by_plugin), Needs())
        return attrs.evolve(self.all, hidden=read.hidden, final=read.final)
