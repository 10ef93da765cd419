"""Every rule keeps the promises of the kit."""

from __future__ import annotations

from spec_rules.block import Block
from spec_rules.k_seq import KSeq
from spec_rules.point_mass import PointMass
from spec_rules.rejection import Rejection
from spec_rules.synthetic import Synthetic
from spec_rules.traversal import Traversal
from spec_rules.typical import Typical

from spec_core.testing import RuleConformance


class Kit(RuleConformance):
    """Fewer samples than for other rules: test_exact enumerates the distributions."""

    samples = 60
    temperatures = (0.8,)

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2], [7]]


class TestRejection(Kit):
    make = Rejection


class TestBlock(Kit):
    make = Block


class TestTraversal(Kit):
    make = Traversal


class TestKSeq(Kit):
    make = KSeq


class TestPointMass(Kit):
    make = PointMass


class TestTypical(Kit):
    make = Typical


class TestSynthetic(Kit):
    make = Synthetic
