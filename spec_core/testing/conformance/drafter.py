"""Conformance of a method: ``class TestEcho(DrafterConformance)`` with ``def make(self): return Echo()``."""

from __future__ import annotations

from spec_core.testing.conformance.texts import TextChecks


class DrafterConformance(TextChecks):
    """Inherit, and let ``make`` return a fresh instance of the method."""
