"""Muon as torch has it, in the type that the processor is fast in."""

from __future__ import annotations

import pytest
import torch
from spec_train.training.muon import Muon, orthogonalize_matrix


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon to compare with")
@pytest.mark.parametrize("shape", [(24, 56), (56, 24)], ids=["wide", "tall"])
def test_steps_are_those_of_torch(shape):
    """Momentum, decay and scale: in bfloat16, as torch does it, to the bit."""
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    a = Muon([ours], lr=1e-2, dtype=torch.bfloat16)
    b = torch.optim.Muon([theirs], lr=1e-2, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()

    assert torch.equal(ours, theirs)


def test_singular_values_come_near_one():
    torch.manual_seed(0)
    x = torch.randn(20, 50)
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    orthogonal = orthogonalize_matrix(x)

    assert torch.linalg.svdvals(orthogonal).sub(0.95).abs().max() < 0.3
    assert torch.allclose(u.T @ orthogonal @ v.T, torch.diag(torch.linalg.svdvals(orthogonal)), atol=0.35)


def test_a_parameter_without_a_gradient_is_left_alone():
    p = torch.nn.Parameter(torch.ones(3, 4))
    Muon([p], lr=1.0).step()

    assert torch.equal(p, torch.ones(3, 4))
