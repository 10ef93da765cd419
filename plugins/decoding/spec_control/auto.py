"""``--control auto``: the method and draft length with the most tokens per time, or plain decoding."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from threading import Lock
from typing import Any

import attrs
from attrs.setters import NO_OP
from attrs.validators import ge, gt
from spec_costs.file import read_costs as read_costs

from spec_control.acceptance import TextStats
from spec_control.account import Account
from spec_control.planner import Planner
from spec_core import Compat, DraftStep, StepRecord, hookimpl

NOTE = "drafts follow measured times, and the text of a seed depends on them here: {}; control=fixed reproduces it"


@attrs.define(eq=False, on_setattr=NO_OP)
class Auto:
    """Drafts as long as they pay, and never costs more than a stated share of plain decoding."""

    share: float = attrs.field(default=0.01, validator=gt(0.0), metadata={"help": "time to lose, by plain decoding's"})
    balance: float = attrs.field(default=20.0, validator=gt(0.0), metadata={"help": "plain steps to lose in addition"})
    plain_every: int = attrs.field(
        default=128, validator=ge(8), metadata={"help": "max steps until plain ones are timed"}
    )
    costs: str | None = attrs.field(default=None, metadata={"help": "file of `spec bench step --out`, to begin with"})
    planner: Planner = attrs.field(init=False)
    exact: str | None = attrs.field(default=None, init=False)
    private: bool = attrs.field(default=False, init=False)
    _name: str = attrs.field(default="", init=False)
    _records: list[StepRecord] = attrs.field(factory=list, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Any = None) -> None:
        """A run begins: what is measured is of one run."""
        self.planner, self._records = Planner(Account(self.share, self.balance), every=self.plain_every), []
        self.exact = None if target is None else target.info.exact
        if self.costs is not None and target is not None:
            file = read_costs(Path(self.costs))
            file.check(target)
            self.planner.begin((), file.steps)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=(), load=self._begin, report=self.report)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        parts = [part for part in step.parts if part.budget and part.seq.wants(step.plugin)]
        texts = {p.seq.number: TextStats(tuple(filter(p.seq.wants, step.methods)), p.budget, p.start) for p in parts}
        with self._lock:
            self.private, self._name, self._records = step.private, step.plugin, step.records
            if not self.planner.methods:
                self.planner.begin(step.methods)
            self.planner.learn(step.records, step.plugin)
            step.plan(self.planner.plan(texts, len(step.parts), step.trees))

    def report(self) -> dict[str, Any]:
        """What was chosen, what it gained, and the account, in plain steps. It changes no plan."""
        with self._lock:  # another thread may ask, while the run makes steps
            planner = deepcopy(self.planner)
            planner.learn(list(self._records), self._name)
        account = {name: getattr(planner.account, name) for name in ("balance", "lowest", "balance_max", "share")}
        return {**planner.report.fields(), "ledger": account, "note": self.note}

    @property
    def note(self) -> str | None:
        """Why a seed's text depends on measured time; None where it does not."""
        if self.private:
            return NOTE.format("the rule draws with noise of its own")
        return None if self.exact in (None, "", "rows") else NOTE.format("rows are not equal to the bit")
