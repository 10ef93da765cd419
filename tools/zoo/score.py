"""Loss of a target on given tokens, with the forward that generation uses."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_core import Needs, Target
from spec_core.toolkit import evaluate


def losses(target: Target, tokens: list[int]) -> Tensor:
    """Nats of every token from the second on, [T - 1] float64."""
    logits = evaluate(target, tokens, Needs(all_logits=True)).logits
    log_p = torch.log_softmax(logits[:-1].double(), -1)
    return -log_p[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
