"""Checks of what a drafter reads: only what its ``Needs`` declare."""

from __future__ import annotations

from typing import Any

import pytest

from spec_core.contract.batch import Batch, TargetOutput
from spec_core.contract.sequence import Sequence
from spec_core.testing.conformance.base import Conformance, expect, run_together
from spec_core.testing.conformance.probes import Lender, LendsParts, Watched, WithoutLogits
from spec_core.testing.conformance.promise import promise
from spec_core.testing.conformance.shown_cache import ShowsItsCache


class NeedsChecks(Conformance):
    """Part of DrafterConformance."""

    @promise("A method that reads logits in rollback or process declares Needs(logits=True): other engines lack them.")
    def test_logits_are_read_only_if_declared(self) -> None:
        if self.compat_answer.needs.logits:
            pytest.skip("declared: it reads logits")
        name, plugin = self.mine()
        run_together(self.run([WithoutLogits(), (name, plugin)]), self.requests())

    @promise("A method that reads weights of the target declares Needs(weights=...): other engines share few or none.")
    def test_weights_are_read_only_if_declared(self) -> None:
        name, plugin = self.mine()
        model = Lender(self.model)
        run = self.run([(name, plugin)], target=model)
        run_together(run, self.requests())
        unasked = model.read - run.needs.weights
        expect(not unasked, f"{', '.join(sorted(unasked))} was read: compat must return Needs(weights=...) with it")

    @promise("A method that evaluates sequences of its own on the target declares Needs(runs_target=True).")
    def test_the_target_is_run_only_if_declared(self) -> None:
        name, plugin = self.mine()
        evaluated, served = set[Sequence](), set[Sequence]()

        def note(batch: Batch, output: TargetOutput) -> None:
            evaluated.update(part.seq for part in batch.parts)

        run = self.run([(name, plugin)], target=Watched(self.model, note))
        run.observe(lambda step: served.update(part.seq for part in step.parts))
        run_together(run, self.requests())
        if not run.needs.runs_target:
            what = "a sequence of the method's own was evaluated: compat must return Needs(runs_target=True)"
            expect(evaluated <= served, what)

    @promise("Rows are probed only where step.probe_room says that there is room: a full batch has none.")
    def test_rows_are_probed_only_where_there_is_room(self) -> None:
        if not self.compat_answer.needs.probes:
            pytest.skip("it probes no rows")
        tight: list[dict[str, Any]] = [{"max_batched_tokens": 12}, {"max_batched_tokens": 3}, {"draft_max": 1}]
        for settings in tight:
            self.is_plain(self.run([self.mine()], **settings), self.requests())

    @promise("A method that runs a part of the target's blocks declares Needs(partial=True): few targets can.")
    def test_parts_of_the_target_are_run_only_if_declared(self) -> None:
        name, plugin = self.mine()
        model = LendsParts(self.model)
        run = self.run([(name, plugin)], target=model)
        run_together(run, self.requests())
        if not run.needs.partial:
            expect(not model.asked, "a part of the blocks was run: compat must return Needs(partial=True)")

    @promise(
        "A method that reads keys and values of the target declares Needs(cached_layers=...): few engines show them."
    )
    def test_keys_and_values_are_read_only_if_declared(self) -> None:
        shown, declared = self._read_cache()
        undeclared = sorted(shown.blocks - declared)
        expect(not undeclared, f"blocks {undeclared} were read: compat must return Needs(cached_layers=...) with them")

    @promise("Keys and values of the target are for reading: a method changes none.")
    def test_keys_and_values_stay_as_they_are(self) -> None:
        shown, _ = self._read_cache()
        expect(not shown.changed, f"keys or values of block {min(shown.changed, default=0)} were changed")

    @promise("A method reads keys and values of evaluated rows alone: later ones may be of rejected drafts.")
    def test_keys_and_values_of_evaluated_rows_are_read(self) -> None:
        shown, _ = self._read_cache()
        expect(not shown.beyond, f"{shown.beyond[0] if shown.beyond else ''}")

    def _read_cache(self) -> tuple[ShowsItsCache, frozenset[int]]:
        """The target's cache after a run, and the blocks that the method declares."""
        name, plugin = self.mine()
        model = ShowsItsCache(self.model)
        if model.cache_reader is None:
            pytest.skip("the target shows none of its cache")
        run = self.run([(name, plugin)], target=model)
        run_together(run, self.requests())
        return model, run.needs.cached_layers
