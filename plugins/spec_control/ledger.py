"""How much more time than plain decoding the run may still spend."""

from __future__ import annotations

import attrs


@attrs.define
class Ledger:
    """An account in plain steps.

    Every token is worth ``1 + income`` plain steps, and time is paid for in plain steps of its moment. The balance
    never exceeds ``balance_max``. A draft is paid in advance: it needs a balance of at least what its step may lose.

    excess: the most that one step took beyond its forecast; so much is not charged. It is often the first draft of a
    run, which loads and allocates.
    """

    income: float = 0.01
    balance_max: float = 20.0
    balance: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)
    lowest: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)
    excess: float = attrs.field(default=0.0, init=False)

    def affords(self, loss: float) -> bool:
        """Whether a step may be made that loses this many plain steps at most."""
        return self.balance >= loss

    def exceeded(self, excess: float) -> None:
        """A step took so many plain steps more than was forecast."""
        if excess > self.excess:
            self.balance += excess - self.excess
            self.excess = excess

    def settle(self, tokens: float, spent: float) -> None:
        """After a step. tokens: of each sequence, on average. spent: its time in plain steps."""
        balance = self.balance + (1 + self.income) * tokens - spent
        self.balance = balance = self.balance_max if balance > self.balance_max else balance
        if balance < self.lowest:
            self.lowest = balance
