"""Tests for plugin authors: conformance classes to inherit, a toy hybrid target, forced drafters, fuzzers.

Imported lazily: pytest loads this module in every session, so it must not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spec_core.testing.conformance.constraint_kit import ConstraintConformance as ConstraintConformance
    from spec_core.testing.conformance.controller import ControllerConformance as ControllerConformance
    from spec_core.testing.conformance.drafter import DrafterConformance as DrafterConformance
    from spec_core.testing.conformance.report import Outcome as Outcome
    from spec_core.testing.conformance.report import check_conformance as check_conformance
    from spec_core.testing.conformance.rollback import RollbackConformance as RollbackConformance
    from spec_core.testing.conformance.rule import RuleConformance as RuleConformance
    from spec_core.testing.conformance.target_kit import TargetConformance as TargetConformance
    from spec_core.testing.constraint import ToyConstraint as ToyConstraint
    from spec_core.testing.drafters import Oracle as Oracle
    from spec_core.testing.drafters import RandomTrees as RandomTrees
    from spec_core.testing.fuzzer import Fuzzer as Fuzzer
    from spec_core.testing.fuzzing import campaign as campaign
    from spec_core.testing.quick import QuickTarget as QuickTarget
    from spec_core.testing.rollback import ToyRollback as ToyRollback
    from spec_core.testing.toy import ToyTarget as ToyTarget

_WHERE = {
    "ConstraintConformance": "conformance.constraint_kit",
    "ControllerConformance": "conformance.controller",
    "DrafterConformance": "conformance.drafter",
    "Fuzzer": "fuzzer",
    "Oracle": "drafters",
    "Outcome": "conformance.report",
    "QuickTarget": "quick",
    "RandomTrees": "drafters",
    "RollbackConformance": "conformance.rollback",
    "RuleConformance": "conformance.rule",
    "TargetConformance": "conformance.target_kit",
    "ToyConstraint": "constraint",
    "ToyRollback": "rollback",
    "ToyTarget": "toy",
    "campaign": "fuzzing",
    "check_conformance": "conformance.report",
}

__all__ = [*sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'spec_core.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"spec_core.testing.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
