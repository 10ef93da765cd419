"""Which methods serve the sequences of a step; hooks of others are not called, and what they read is not computed."""

from __future__ import annotations

from functools import reduce
from operator import or_

import attrs

from spec_core.assembly.construct import PluginInstance
from spec_core.contract.batch import Part
from spec_core.contract.values import Needs

NOBODY: frozenset[str] = frozenset()


@attrs.define
class Serving:
    """plugins: of the run. needs: theirs together."""

    plugins: list[PluginInstance]
    needs: Needs
    _idle_by: dict[frozenset[str], frozenset[str]] = attrs.field(factory=dict)
    _read_by: dict[frozenset[str], Needs] = attrs.field(factory=dict)

    def idle(self, parts: list[Part]) -> frozenset[str]:
        """Methods that serve none of these sequences, and own nothing."""
        serving = parts[0].seq.methods if parts else NOBODY
        for part in parts:
            own = part.seq.methods
            if serving is None or own is None:
                return NOBODY
            if own is not serving:  # of one sequence nothing is joined, and the hash is known
                serving |= own
        names = self._idle_by.get(serving)
        if names is None:
            methods = (c for c in self.plugins if c.proposals and not c.compat.owns and "accept" not in c.hooks)
            names = self._idle_by[serving] = frozenset(c.name for c in methods if c.name not in serving)
        return names

    def read(self, idle: frozenset[str]) -> Needs:
        """What a forward returns where nobody else reads it."""
        if not idle:
            return self.needs
        needs = self._read_by.get(idle)
        if needs is None:
            others = reduce(or_, (c.compat.needs for c in self.plugins if c.name not in idle), Needs())
            needs = self._read_by[idle] = attrs.evolve(self.needs, hidden=others.hidden, final=others.final)
        return needs
