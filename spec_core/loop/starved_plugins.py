"""Plugins that were never offered a sequence: undeclared controllers, or methods named after one that always drafts."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import attrs

from spec_core.assembly.construct import PluginInstance
from spec_core.contract.step import Step

log = logging.getLogger("spec_core")


@attrs.define
class StarvedPlugins:
    """Watches plugins with a draft hook and no declared ``drafts``, until each was offered a sequence once.

    before: {plugin: plugins called before it}. steps: {plugin: steps in which those drafted for every sequence}.
    """

    before: dict[str, frozenset[str]]
    steps: dict[str, int] = attrs.field(factory=dict)

    @classmethod
    def among(cls, plugins: Iterable[PluginInstance]) -> StarvedPlugins:
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
        """Count a step, after its drafts are made."""
        for name, before in list(self.before.items()):
            served = [part.source in before for part in step.parts if part.budget and part.seq.wants(name)]
            if all(served):
                self.steps[name] = self.steps.get(name, 0) + bool(served)
            else:
                del self.before[name]

    def say(self) -> None:
        """Log a warning for each such plugin, once, when no sequence runs or waits."""
        for name, before in self.before.items():
            if count := self.steps.get(name):
                log.warning(
                    "%s was offered no sequence in %d steps: %s drafted for all. For a method: name it earlier; "
                    "for a controller: return Compat(drafts=()) from compat",
                    name,
                    count,
                    " and ".join(sorted(before)),
                )
        self.before.clear()
