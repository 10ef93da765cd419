"""A target whose only state is recurrent and decays with every token. It keeps no rows."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from spec_core import Compat, Needs, Refusal, TargetInfo, TargetOutput, hookimpl


@attrs.define(eq=False)
class Memory:
    """faded: [D], everything read so far."""

    faded: Tensor


class Fading:
    """Logits of the tokens so far, halved with every new token; another plugin owns the state."""

    tokenizer = None

    def __init__(self, vocab: int = 24, width: int = 8, context: int = 96) -> None:
        random = torch.Generator().manual_seed(5)
        self.info = TargetInfo(
            "fading", vocab, width, layers=1, context=context, states={"recurrent"}, dtype="float64", family="fading"
        )
        self.embed = torch.randn(vocab, width, generator=random, dtype=torch.float64)
        self.head = torch.randn(vocab, width, generator=random, dtype=torch.float64)

    def forward(self, batch, needs):
        x = self.embed[batch.tokens.clamp_min(0)]  # [R, D]
        for row, embedding in batch.embeds.items():
            x[row] = embedding
        after, expected = torch.empty_like(x), []
        for part in batch.parts:
            end = part.spec + part.drafted
            expected += range(part.row, end) if needs.all_logits else range(part.spec - 1, end) if part.decides else ()
            memory = part.seq.slot.state
            for row in range(part.row, part.spec):
                memory.faded = after[row] = memory.faded / 2 + x[row]
            for row in range(part.spec, end):
                parent = batch.parents[row]
                after[row] = after[parent] / 2 + x[row]
        logits = [self.head @ after[row] for row in expected]
        return TargetOutput(
            logits=torch.stack(logits) if logits else x.new_empty(0, self.info.vocab),
            hidden={i: (x, after)[i].clone() for i in needs.hidden},
            final=after.clone() if needs.final else None,
            trace=after.clone() if needs.trace == "states" else None,
        )

    def tensor(self, name):
        return {"token_embd.weight": self.embed, "output.weight": self.head}[name]

    def open(self, seq, want):
        if seq.slot.state is None:
            seq.slot.state = Memory(torch.zeros(self.info.width, dtype=torch.float64))
        start = max((p for p in seq.slot.checkpoints if p <= want), default=0)
        self.restore(seq, start)
        return start

    def close(self, seq):
        seq.slot.state = None

    def checkpoint(self, seq):
        return seq.slot.state.faded.clone()

    def restore(self, seq, position):
        zero = torch.zeros(self.info.width, dtype=torch.float64)
        seq.slot.state.faded = seq.slot.checkpoints[position].clone() if position else zero

    @hookimpl
    def compat(self):
        return Compat()


class FadingAlone(Fading):
    """The same, but owns its state: it has accepted drafts evaluated again."""

    @hookimpl
    def compat(self):
        return Compat(owns={"recurrent"})

    @hookimpl
    def rollback(self, step):
        for seq, verdict in step.verdicts.items():
            if verdict.path:
                step.rewind(seq, step.part(seq).end)


class Fades:
    """The owner of that state: restores the state recorded after the last accepted draft."""

    @hookimpl
    def compat(self, target):
        if target.info.family != "fading":
            return Compat(refusals=[Refusal(f"{target.info.name} does not fade", "use another owner of its state")])
        return Compat(owns={"recurrent"}, needs=Needs(trace="states"), drafts=())

    @hookimpl
    def rollback(self, step):
        for seq, verdict in step.verdicts.items():
            if verdict.path:
                seq.slot.state.faded = step.output.trace[step.kept_rows(seq)[-1]].clone()
