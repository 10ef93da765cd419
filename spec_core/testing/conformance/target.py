"""Conformance of a target: ``make`` returns a fresh target."""

from __future__ import annotations

from typing import Any

from spec_core.target import Target
from spec_core.testing.conformance.base import Conformance
from spec_core.testing.conformance.promise import promise
from spec_core.testing.drafters import Oracle


class TargetConformance(Conformance):
    """Inherit, and let ``make`` return a fresh target."""

    def make(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must say what it tests: def make(self): return MyTarget()")

    def target(self) -> Target:
        return self.make()

    @promise("Drafts change no text, however many are kept.")
    def test_text_equals_plain_decoding(self) -> None:
        requests = self.requests()
        known = {r.name: self.text_of(r) for r in requests}
        for kept in range(4):
            oracle = Oracle(known, lambda i, seq, kept=kept: i < kept, vocab=self.model.info.vocab)
            self.is_plain(self.run([oracle]), requests)
