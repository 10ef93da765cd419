"""What a controller lets methods draft: a value that the loop follows for some steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import index
from types import MappingProxyType
from typing import Any

import attrs

from spec_core.contract.step_record import StepRecord

NO_LIMITS: Mapping[Any, Any] = MappingProxyType({})
"""The limits of a sequence that no method drafts for."""


def _length(value: int | None) -> int | None:
    return None if value is None else index(value)


def _names(value: Iterable[str]) -> frozenset[str]:
    return frozenset(value)


@attrs.frozen
class Limit:
    """How much one method may draft for a sequence. Raises ValueError for a value outside of its range.

    length: tokens of its longest path, at least 0; None: what the run allows.
    price: a token is drafted only if its whole path is accepted with at least this chance, 0 to 1, by the method's own
    estimate; None: the method's usual one. The user's own setting comes before it.
    nodes: tokens of a tree, at least 0; None: what the run allows.
    """

    length: int | None = attrs.field(default=None, converter=_length)
    price: float | None = None
    nodes: int | None = attrs.field(default=None, converter=_length)

    def __attrs_post_init__(self) -> None:
        for name, n in (("length", self.length), ("nodes", self.nodes)):
            if n is not None and n < 0:
                raise ValueError(f"Limit({name}={n}): it is 0 or more")
        if self.price is not None and not 0 <= self.price <= 1:
            raise ValueError(f"Limit(price={self.price}): a chance is 0 to 1")


@attrs.frozen
class DraftPlan:
    """What methods may draft until ``steps`` are over, a sequence joins or ends, or ``loss_max`` seconds are lost.

    Raises ValueError for a value outside of its range.

    limits: {method: Limit}; a method without one does not draft. Empty: plain decoding, without a call of any method's
    draft hook after the step in which the plan was made.
    sequences: {Sequence.number: {method: Limit}}, in place of ``limits`` for these sequences.
    steps: at least 1, beginning with the one in which the plan is made.
    loss_max: seconds, 0 or more, by which its steps may exceed ``plain_seconds`` for each token that they emitted, of
    all sequences on average, before the plan ends. What one step gains pays for no loss of a later one.
    drop: methods that no longer serve the sequences of this step. They draft nothing and get no rows from the next
    step on, and cannot be taken back. A later request whose prompt begins with this text reuses only the rows that
    they have seen.
    """

    limits: Mapping[str, Limit]
    sequences: Mapping[int, Mapping[str, Limit]] = attrs.field(factory=dict)
    steps: int = attrs.field(default=1, converter=index)
    loss_max: float = math.inf
    plain_seconds: float = 0.0
    drop: frozenset[str] = attrs.field(default=frozenset(), converter=_names)

    def __attrs_post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"DraftPlan(steps={self.steps}): a plan has one step or more")
        for name, seconds in (("loss_max", self.loss_max), ("plain_seconds", self.plain_seconds)):
            if not seconds >= 0:
                raise ValueError(f"DraftPlan({name}={seconds}): a time is 0 or more")

    @property
    def is_plain(self) -> bool:
        """Whether it lets no method draft."""
        return not self.limits and not any(self.sequences.values())

    @property
    def methods(self) -> frozenset[str]:
        """Methods that it names."""
        named = {*self.limits, *self.drop, *(name for limits in self.sequences.values() for name in limits)}
        return frozenset(named)

    def limits_of(self, number: int) -> Mapping[str, Limit]:
        """Limits of a sequence. number: ``Sequence.number``."""
        return self.sequences.get(number, self.limits)

    def loss_of(self, record: StepRecord) -> float:
        """Seconds by which a step exceeded ``plain_seconds`` for each of its tokens."""
        return record.total_seconds - self.plain_seconds * record.tokens / max(1, record.sequences)
