"""Checks of what a drafter reads: only what its ``Needs`` declare."""

from __future__ import annotations

import pytest

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.values import Compat
from spec_core.testing.conformance.base import Conformance, expect, together
from spec_core.testing.conformance.probes import Lender, WithoutLogits
from spec_core.testing.conformance.promise import promise


class NeedsChecks(Conformance):
    """Part of DrafterConformance."""

    @promise("A method that reads logits in rollback or process declares Needs(logits=True): other engines lack them.")
    def test_logits_are_read_only_if_declared(self) -> None:
        name, plugin = self.mine()
        answer = ask_compat(plugin, name, self.model) or Compat()
        if answer.needs.logits:
            pytest.skip("declared: it reads logits")
        together(self.run([WithoutLogits(), (name, plugin)]), self.requests())

    @promise("A method that reads weights of the target declares Needs(weights=...): other engines share few or none.")
    def test_weights_are_read_only_if_declared(self) -> None:
        name, plugin = self.mine()
        model = Lender(self.model)
        run = self.run([(name, plugin)], target=model)
        together(run, self.requests())
        unasked = model.read - run.needs.weights
        expect(not unasked, f"{', '.join(sorted(unasked))} was read: compat must return Needs(weights=...) with it")
