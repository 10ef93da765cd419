"""Partial rollback of gated delta nets and short convolutions: restores the state after the last accepted token, by one
of three strategies.

Attention rows can be dropped, but a recurrent state cannot undo a rejected token, so the state after the last kept
token is either recorded or computed again. See ``docs/methods/gdn-rollback``.

Example: of four drafted tokens two are kept. ``snapshot`` makes the recorded state after the second the current one;
``replay`` updates the committed state with the recorded inputs of the first two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs
from spec_kernels.machine import free_bytes

from spec_core import Compat, Needs, Refusal, RollbackStep, Sequence, Target, hookimpl
from spec_core.toolkit import RecurrentSizes

Strategy = Literal["auto", "snapshot", "replay", "checkpoint"]
TRACES: dict[str, Literal["states", "inputs"] | None] = {"snapshot": "states", "replay": "inputs", "checkpoint": None}
"""Records of each strategy in a forward."""
SHARE = 0.5
"""Share of the free memory that traces may take."""


@attrs.define(eq=False)
class GdnRollback:
    """Owns the recurrent state of gated delta nets and short convolutions, and advances it to the last accepted token.

    ``snapshot`` records the state after each of the first ``n`` drafts and selects the right one by changing an
    index; if more drafts are kept, it rewinds to the last recorded state. ``replay`` records the inputs of every
    draft and repeats the updates of the kept path. ``checkpoint`` keeps the committed state, and the kept drafts are
    evaluated again with the next forward. ``auto`` is ``replay`` if its records fit in memory, else ``checkpoint``.
    """

    strategy: Strategy = attrs.field(default="auto", metadata={"help": "auto, snapshot, replay or checkpoint"})
    n: int = attrs.field(
        default=16, validator=attrs.validators.ge(0), metadata={"help": "max draft length that memory is planned for"}
    )
    sequences: int = attrs.field(
        default=1, validator=attrs.validators.ge(1), metadata={"help": "sequences that memory is planned for"}
    )
    chosen: str = attrs.field(default="", init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        sizes = target.info.recurrent
        if sizes is None:
            reason = f"{target.info.name} does not describe any recurrent layers"
            return Compat(refusals=[Refusal(reason, hint="choose another owner with --rollback, or none")])
        need = {name: self.sequences * size for name, size in memory(sizes, self.n).items()}
        free = free_bytes(target.info.device)
        self.chosen = self.strategy if self.strategy != "auto" else choose_strategy(need, free)
        return Compat(
            owns={"recurrent"},
            needs=Needs(trace=TRACES[self.chosen], depth=self.n if self.chosen == "snapshot" else None),
            refusals=too_large(self.chosen, need, free),
            drafts=(),
            notes=[f"{self.chosen}: {describe_need(need)} for drafts of {self.n}, {self.sequences} sequence(s)"],
        )

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, verdict in step.verdicts.items():
            if verdict.path:
                getattr(self, f"_{self.chosen}")(step, seq)

    def _snapshot(self, step: RollbackStep, seq: Sequence) -> None:
        """Select the state after the last kept draft that has one; rows after it are evaluated again."""
        assert step.output is not None
        rows = step.kept_rows(seq)
        places = step.output.trace.places if step.output.trace is not None else {}
        known = [i for i, row in enumerate(rows) if row in places]
        if known:
            seq.slot.state.recurrent.pick(places[rows[known[-1]]])
        if len(known) < len(rows):
            step.rewind(seq, step.part(seq).end + len(known))

    def _replay(self, step: RollbackStep, seq: Sequence) -> None:
        assert step.output is not None
        seq.slot.state.recurrent.replay(step.output.trace, step.kept_rows(seq))

    def _checkpoint(self, step: RollbackStep, seq: Sequence) -> None:
        step.rewind(seq, step.part(seq).end)


def memory(sizes: RecurrentSizes, n: int) -> dict[str, int]:
    """Bytes that each strategy needs besides the committed state, for one sequence with drafts of n.

    Verification computes states that it does not keep in one additional state of one layer.
    """
    layers, state, record = sizes.layers, sizes.state_bytes, sizes.record_bytes
    return {"snapshot": layers * n * state, "replay": layers * n * record + state, "checkpoint": state}


def choose_strategy(need: Mapping[str, int], free: int) -> str:
    """Choose a strategy: replay is as fast as snapshots, in a few per cent of their memory (docs/benchmarks.md)."""
    return "replay" if need["replay"] <= SHARE * free else "checkpoint"


def too_large(strategy: str, need: Mapping[str, int], free: int) -> list[Refusal]:
    if need[strategy] <= SHARE * free:
        return []
    reason = f"{strategy} needs {need[strategy] >> 20} MiB, {free >> 20} MiB are free"
    hint = "use strategy=replay or checkpoint, or a smaller n" if strategy == "snapshot" else "free some memory"
    return [Refusal(reason, hint=f"{hint} (-o gdn-rollback.strategy=..., -o gdn-rollback.n=...)")]


def describe_need(need: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in need.items())
