"""Tests of spec-lenient: the kit's promises, lossless and lossy, and that lenience accepts more."""

from spec_lenient import Lenient

from spec_core.testing import RuleConformance


class TestLossless(RuleConformance):
    """Held to the target's distribution."""

    def make(self):
        return Lenient(lenience=1.0)


class TestLossy(RuleConformance):
    def make(self):
        return Lenient(lenience=0.5)
