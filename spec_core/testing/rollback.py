"""Rollback of the toy target's recurrent state: one owner with the three known strategies."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from spec_core.contract.kinds import Trace
from spec_core.contract.sequence import Sequence
from spec_core.contract.target import Target
from spec_core.contract.values import Compat, Needs, Refusal
from spec_core.contract.verified_step import RollbackStep
from spec_core.hookspecs import hookimpl
from spec_core.testing.toy import Record, ToyTarget


@attrs.define(eq=False)
class ToyRollback:
    """Owns ``recurrent``.

    ``snapshot`` selects the state after the last kept draft, ``replay`` repeats the kept path's updates from recorded
    inputs, ``checkpoint`` keeps the committed state, and the kept drafts are evaluated again in the next step.
    """

    strategy: Literal["snapshot", "replay", "checkpoint"] = "snapshot"
    target: ToyTarget | None = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        if target.info.family != "toy":
            refusal: Any = Refusal(f"{target.info.name} is not a toy target", "use another owner of its state")
            return Compat(refusals=[refusal])
        traces: dict[str, Trace | None] = {"snapshot": "states", "replay": "inputs", "checkpoint": None}
        return Compat(owns={"recurrent"}, needs=Needs(trace=traces[self.strategy]), drafts=(), load=self._load)

    def _load(self, target: ToyTarget) -> None:
        self.target = target

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, verdict in step.verdicts.items():
            if verdict.path:
                self._restore(step, seq)

    def _restore(self, step: RollbackStep, seq: Sequence) -> None:
        assert self.target is not None and step.output is not None
        rows = step.kept_rows(seq)
        if self.strategy == "checkpoint":
            step.rewind(seq, step.part(seq).end)
        elif self.strategy == "snapshot":
            seq.slot.state.recurrent = step.output.trace[rows[-1]]
        else:
            for row in rows:
                record: Record = step.output.trace[row]
                seq.slot.state.recurrent = self.target.advance(seq.slot.state.recurrent, record.source)
