"""A constraint on the text of a request: which tokens may follow, at every position of a draft.

The core knows this protocol and ``Matcher``; how a constraint is written (a schema, a grammar) is the matter of whoever
implements them.
"""

from __future__ import annotations

from typing import Protocol

from spec_core.contract.matcher import Matcher
from spec_core.contract.sequence import Sequence, end_with_error
from spec_core.contract.target import Target
from spec_core.errors import ConstraintError, message


class Constraint(Protocol):
    """A constraint, ready to be used by any number of requests, one Matcher each."""

    def start(self, target: Target) -> Matcher:
        """The state before the first token of the output. Raises UsageError if it cannot be used with this target."""


def fail_sequence(seq: Sequence, error: Exception) -> None:
    """End a sequence whose constraint failed; others go on. A matcher raises NoTokenAllowed for a request's mistake."""
    if not isinstance(error, ConstraintError):
        reason = f"the constraint failed: {type(error).__name__}: {message(error)}"
        cause, error = error, ConstraintError(reason, hint="report it to the author of the constraint")
        error.__cause__ = cause
    end_with_error(seq, error)
