"""Conformance of a controller: ``make`` returns a new plugin that never drafts and limits others' drafts."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.request import Request
from spec_core.contract.values import Compat
from spec_core.loop.run import Run
from spec_core.testing.conformance.base import check_forgotten, expect, run_together
from spec_core.testing.conformance.drafts import MetadataOnly
from spec_core.testing.conformance.promise import promise
from spec_core.testing.conformance.settings_kit import SettingsChecks
from spec_core.testing.drafters import Oracle


class ControllerConformance(SettingsChecks):
    """Inherit, and let ``make`` return a new controller. A drafter of the kit gives it something to limit."""

    def is_plain(self, run: Run, requests: list[Request], each: Callable[[], None] | None = None) -> None:
        """Check the texts, and that the controller did not fail: a run goes on without it."""
        super().is_plain(run, requests, each)
        expect(not run.stats.switched_off, f"it was switched off: {', '.join(run.stats.switched_off.values())}")

    def one_request(self) -> None:
        self.is_plain(self.controlled_run(self.requests()[:1]), self.requests()[:1])

    def controlled_run(self, requests: list[Request], last: bool = False, **settings: Any) -> Run:
        """A run with the controller and a drafter with three right tokens per step. last: name the controller last."""
        known = {request.name: self.text_of(request) for request in requests}
        drafter = Oracle(known, lambda i, seq: i < 3, vocab=self.model.info.vocab)
        named = [self.mine(), drafter]
        return self.run(named[::-1] if last else named, **settings)

    @promise("compat declares drafts=(). Otherwise the controller is called too late, and its limits are refused.")
    def test_it_says_that_it_drafts_nothing(self) -> None:
        answer = ask_compat(self.make(), "controller", MetadataOnly(self.model)) or Compat()
        expect(answer.drafts is not None and not answer.drafts, f"compat declares drafts={answer.drafts}")

    @promise("The limits never change the text: it is that of plain decoding.")
    def test_text_equals_plain_decoding(self) -> None:
        requests = self.requests(n=24)
        for last in (False, True):
            self.is_plain(self.controlled_run(requests, last), requests)

    @promise("Sequences that join or leave do not change the text of others, also in a reused slot.")
    def test_sequences_come_and_go(self) -> None:
        requests = self.requests(n=8)
        self.is_plain(self.controlled_run(requests, max_sequences=2), requests)

    @promise("The instance keeps no data of a finished sequence.")
    def test_finished_sequences_are_forgotten(self) -> None:
        requests = self.requests(n=6)
        run = self.controlled_run(requests, max_sequences=1, reuse=False)
        seen = [weakref.ref(run.submit(request)) for request in requests]
        run_together(run, [])
        run.results.clear()
        check_forgotten(seen, max_sequences=1)
