"""Every plugin of this package passes the conformance class of its kind, like anybody's."""

from __future__ import annotations

import pytest
from spec_methods.ngram import Ngram

from spec_core.accept import Coupled
from spec_core.testing import (
    DrafterConformance,
    RollbackConformance,
    RuleConformance,
    TargetConformance,
    ToyRollback,
    ToyTarget,
)


class TestNgram(DrafterConformance):
    learns_from_verdicts = "length"

    def make(self):
        return Ngram()


class TestCoupled(RuleConformance):
    def make(self):
        return Coupled()


@pytest.mark.parametrize("strategy", ["snapshot", "replay", "checkpoint"])
class TestToyRollback(RollbackConformance):
    @pytest.fixture(autouse=True)
    def chosen(self, strategy):
        self.strategy = strategy

    def make(self):
        return ToyRollback(self.strategy)


class TestToyTarget(TargetConformance):
    def make(self):
        return ToyTarget()
