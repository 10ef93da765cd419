"""Conformance of a method: ``class TestEcho(DrafterConformance)`` with ``def make(self): return Echo()``."""

from __future__ import annotations

from spec_core.testing.conformance.declared import NeedsChecks
from spec_core.testing.conformance.extend import ExtendChecks
from spec_core.testing.conformance.memory_kit import MemoryChecks
from spec_core.testing.conformance.settings_kit import SettingsChecks
from spec_core.testing.conformance.text_checks import TextChecks
from spec_core.testing.conformance.values_kit import ValueChecks


class DrafterConformance(TextChecks, MemoryChecks, ExtendChecks, NeedsChecks, ValueChecks, SettingsChecks):
    """Inherit, and let ``make`` return a new instance of the method.

    A method declares intended deviations in its ``Compat``: ``learns="length"`` or ``"tokens"`` if earlier verdicts
    change later drafts, ``shares_learning`` if one text may change the drafts of others, ``keeps_former_text`` if the
    earlier text of a slot may help the next one.
    """
