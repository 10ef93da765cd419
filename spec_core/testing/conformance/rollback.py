"""Conformance of an owner of target state: ``make`` returns a fresh owner."""

from __future__ import annotations

from typing import Any

from spec_core.testing.conformance.base import Conformance
from spec_core.testing.conformance.promise import promise
from spec_core.testing.drafters import Oracle


class RollbackConformance(Conformance):
    """Inherit, and let ``make`` return a fresh owner of the target's recurrent state."""

    def owner(self) -> Any:
        return self.make()

    @promise("Whatever is kept of a draft, the text is that of plain decoding.")
    def test_text_equals_plain_decoding(self) -> None:
        requests = self.requests()
        known = {r.name: self.text_of(r) for r in requests}
        for kept in range(4):
            oracle = Oracle(known, lambda i, seq, kept=kept: i < kept, vocab=self.model.info.vocab)
            self.is_plain(self.run([oracle]), requests)
