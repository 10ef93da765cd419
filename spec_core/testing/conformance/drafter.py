"""Conformance of a method: ``class TestEcho(DrafterConformance)`` with ``def make(self): return Echo()``."""

from __future__ import annotations

from spec_core.testing.conformance.extend import ExtendChecks
from spec_core.testing.conformance.memory import MemoryChecks
from spec_core.testing.conformance.texts import TextChecks


class DrafterConformance(TextChecks, MemoryChecks, ExtendChecks):
    """Inherit, and let ``make`` return a fresh instance of the method.

    What a method does on purpose it declares as a class attribute: ``learns_from_verdicts = "length"`` or ``"tokens"``
    where earlier verdicts change later drafts, ``shares_between_sequences = True`` where one text helps another,
    ``keeps_former_text = True`` where the former text of a slot helps the next one on it.
    """
