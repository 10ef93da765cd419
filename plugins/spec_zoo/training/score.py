"""Loss of a target on given tokens, through the same forward that generates."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_core import Needs
from spec_core.contract.batch import Part
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.loop.schedule import batch
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.stop import Stop


def losses(target: Target, tokens: list[int]) -> Tensor:
    """Nats of every token from the second on, [T - 1] float64."""
    needs = Needs(all_logits=True)
    seq = Sequence(tokens, len(tokens), 0, Sampling(), Stop())
    target.open(seq, 0)
    step = Step(target, {})
    step.add(Part(seq, 0, tokens, decides=True))
    logits = target.forward(batch(step, needs, target.info.device), needs).logits
    log_p = torch.log_softmax(logits[:-1].double(), -1)
    return -log_p[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
