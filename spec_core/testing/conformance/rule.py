"""Conformance of an acceptance rule: ``make`` returns a fresh rule."""

from __future__ import annotations

from typing import Any

from spec_core.run import Run
from spec_core.target import Target
from spec_core.testing.conformance.base import Conformance, together
from spec_core.testing.conformance.promise import promise
from spec_core.testing.drafters import RandomTrees


class RuleConformance(Conformance):
    """Inherit, and let ``make`` return a fresh rule."""

    def run(self, methods: Any, target: Target | None = None, **settings: Any) -> Run:
        return super().run(methods, target, rule=("rule", self.make()), **settings)

    @promise("A verdict is a path of the draft and one token more.")
    def test_verdicts_are_paths_of_the_draft(self) -> None:
        requests = self.requests()
        for trees in (False, True):
            drafter = RandomTrees({r.name: self.text_of(r) for r in requests}, trees=trees)
            together(self.run([drafter]), requests)
