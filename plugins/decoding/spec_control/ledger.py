"""How much more time than plain decoding the run may still spend."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

LARGE = 2.0
"""Plain steps by which a step exceeds its forecast, above which it is a disturbance."""
RISK, RISK_MIN = 5.0, 1.0
"""One step may lose this part of the balance, or so many plain steps: else few rejected drafts would use it up."""
RESERVE, KEPT = 4.0, 10.0
"""Plain steps that must be in the ledger before anybody drafts again, once it was used up: with less, plans alone would
use it up. And those that are kept for sequences that begin, as others may be easier than one in which drafts lose."""
FULL = 0.9
"""Share of the largest balance from which on it is as good as full."""
DISTURBED = 0.03
"""Share of the run up to which disturbances are not charged: more of them are a cost of drafts."""


@attrs.define
class Ledger:
    """An account in plain steps.

    Every token is worth ``1 + income`` plain steps, and time is paid for in plain steps of its moment. The balance
    never exceeds ``balance_max``. A draft is paid in advance: it needs a balance of at least what its step may lose.

    excess: the most that one step took beyond its forecast. Such steps are disturbances of the machine, or the first
    draft of a run, which loads and allocates. forgiven: what was not charged of them: no more than the largest, or
    ``DISTURBED`` of all tokens.
    excused: so many steps more are not charged for their excess, as the operating system took the processor away.
    """

    income: float = 0.01
    balance_max: float = 20.0
    balance: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)
    lowest: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)
    excess: float = attrs.field(default=0.0, init=False)
    forgiven: float = attrs.field(default=0.0, init=False)
    excused: int = attrs.field(default=0, init=False)
    _tokens: float = attrs.field(default=0.0, init=False)

    @property
    def full(self) -> bool:
        """Nearly: more will not allow longer drafts."""
        return self.unfilled < 0.0

    @property
    def unfilled(self) -> float:
        """Plain steps until it is full, negative where it is."""
        return FULL * self.balance_max - self.balance

    @property
    def reserve(self) -> float:
        """What must be in it before anybody drafts again, once it was used up."""
        return min(RESERVE, FULL * self.balance_max)

    @property
    def kept(self) -> float:
        """What is kept for sequences that begin."""
        return min(KEPT, FULL * self.balance_max)

    @property
    def next_level(self) -> float:
        """The balance at which it is looked again whether drafts pay that it does not allow now."""
        levels = self.reserve, self.kept, FULL * self.balance_max
        return next((level for level in levels if level > self.balance), self.balance_max)

    @property
    def risk(self) -> float:
        """Plain steps that one step may lose at most; negative while the ledger is repaid."""
        balance = self.balance
        return max(balance / RISK, min(balance, RISK_MIN))

    def forgive(self, excess: float, excusable: bool = True) -> float:
        """A step took so many plain steps more than was forecast. Returns how many of them shall not be charged.

        excusable: it may have been an interruption; a first draft, which takes long by itself, is not.
        """
        if excess < LARGE:
            return 0.0
        if excusable and self.excused > 0:
            self.excused -= 1
            return excess
        self.excess = max(self.excess, excess)
        found = max(0.0, min(excess, max(self.excess, DISTURBED * self._tokens) - self.forgiven))
        self.forgiven += found
        return found

    def settle(self, tokens: float, spent: float) -> None:
        """After a step. tokens: of each sequence, on average. spent: its time in plain steps."""
        self.settle_all([(tokens, spent)])

    def settle_all(self, steps: Iterable[tuple[float, float]]) -> None:
        """After several, one by one: what is above the largest balance does not pay for later ones."""
        balance, lowest, worth = self.balance, self.lowest, 1 + self.income
        for tokens, spent in steps:
            self._tokens += tokens
            balance += worth * tokens - spent
            if balance > self.balance_max:
                balance = self.balance_max
            elif balance < lowest:
                lowest = balance
        self.balance, self.lowest = balance, lowest
