"""What a plugin's author tests with: a toy hybrid target, forced drafters, owners of its state."""

from spec_core.testing.drafters import Oracle, RandomTrees
from spec_core.testing.rollback import ToyRollback
from spec_core.testing.toy import ToyTarget

__all__ = ["Oracle", "RandomTrees", "ToyRollback", "ToyTarget"]
