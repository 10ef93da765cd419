"""Loss of a target on given tokens, through the same forward that generates."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_core import Needs
from spec_core.sampling import Sampling
from spec_core.schedule import batch
from spec_core.sequence import Sequence
from spec_core.step import Part, Step
from spec_core.stop import Stop
from spec_core.target import Target


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
