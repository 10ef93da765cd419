"""Families that have operations without a GPU kernel are refused there by name, before weights are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from spec_kernels.executors import ExecutorMisfit, choose_executor
from spec_kernels.model.executor import ExecutorRequest

from spec_core import load
from tests.support.small_models import tiny_deepseek

REFUSED = {
    "deepseek2": (tiny_deepseek, "attention over latents has no GPU kernel"),
}


@pytest.mark.parametrize("family", REFUSED)
def test_a_family_without_kernels_is_refused_by_name(family):
    place, reason = REFUSED[family]
    model = load(place(), device="cpu", weights=False).plan.model
    request = ExecutorRequest(torch.device("cuda"), torch.float32, positions=8)

    with pytest.raises(ExecutorMisfit, match=reason):
        choose_executor(model, request)
    assert choose_executor(model, replace(request, kernels="reference"))[0].name == "reference"
