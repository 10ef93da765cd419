"""Every rule keeps the promises of the kit."""

from __future__ import annotations

from spec_rules.block import Block
from spec_rules.k_seq import KSeq
from spec_rules.point_mass import PointMass
from spec_rules.rejection import Rejection
from spec_rules.synthetic import Synthetic
from spec_rules.traversal import Traversal
from spec_rules.typical import Typical

from spec_core.accept import Coupled
from spec_core.testing import RuleConformance


class Kit(RuleConformance):
    """Fewer samples than a stranger's rule gets: the laws are enumerated in test_exact."""

    samples = 120


class TestCoupled(Kit):
    make = Coupled


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
