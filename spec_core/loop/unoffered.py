"""Plugins that never had anything to do: an undeclared controller looks like a method that was named too late."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import attrs

from spec_core.assembly.construct import Chosen
from spec_core.contract.step import Step

log = logging.getLogger("spec_core")


@attrs.define
class Unoffered:
    """Watches plugins with a draft hook that do not say what they draft, until each was offered a sequence once.

    before: {plugin: those asked before it}. steps: {plugin: steps in which these had served every sequence}.
    """

    before: dict[str, frozenset[str]]
    steps: dict[str, int] = attrs.field(factory=dict)

    @classmethod
    def among(cls, plugins: Iterable[Chosen]) -> Unoffered:
        drafters = [c for c in plugins if c.proposals]
        names = [c.name for c in drafters]
        return cls(
            {
                c.name: frozenset(names[:i])
                for i, c in enumerate(drafters)
                if i and c.compat.drafts is None and not c.compat.extends
            }
        )

    def look(self, step: Step) -> None:
        """After a step's drafts are made."""
        for name, before in list(self.before.items()):
            served = [part.source in before for part in step.parts if part.budget and part.seq.wants(name)]
            if all(served):
                self.steps[name] = self.steps.get(name, 0) + bool(served)
            else:
                del self.before[name]

    def say(self) -> None:
        """When nothing runs or waits; once for each."""
        for name, before in self.before.items():
            if count := self.steps.get(name):
                log.warning(
                    "%s was offered no sequence in %d steps: %s served all. To draft, name it before; "
                    "to limit what others draft, return Compat(drafts=()) from compat",
                    name,
                    count,
                    " and ".join(sorted(before)),
                )
        self.before.clear()
