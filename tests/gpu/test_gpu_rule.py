"""What a cache of windows keeps on a device, and which experts a router chooses, against torch.

In triton's interpreter where there is no device. What lies between the rows of an input is NaN, so that a kernel that
reads outside a row is found. The recurrences themselves: tests/kernels/test_recurrences.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu import delta_rule
from spec_kernels.gpu.routing import route_into, route_sigmoid_into
from spec_kernels.gpu.windows import Links, keep_windows, kept_spans
from spec_kernels.ops import causal_conv, moe

from tests.support.recurrences import DEVICE, chain, ragged_lineage, spread

RATIO = 2e-6 if DEVICE.type == "cpu" else 1e-5
"""Max root mean square difference: a device's exponential of x is off by about 2**-22 + |x| / 2**24 of its size."""


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


def close(kernel: Tensor, plain: Tensor) -> None:
    assert torch.equal(kernel.isnan(), plain.isnan())
    assert (kernel - plain).nan_to_num().norm() <= RATIO * plain.nan_to_num().norm()


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("lineage", [chain(1), chain(5), ragged_lineage((3, 4, 5, 6, 7)), ragged_lineage((-1,) * 5)])
def test_windows_after_kept_rows(lineage, width):
    x, windows, weight = (
        spread(torch.randn(lineage.rows, 20)).cpu(),
        torch.randn(9, width - 1, 20),
        torch.randn(width, 20),
    )
    expected = windows.clone()
    causal_conv.causal_conv(x, weight, expected, lineage)
    numbers = lambda m: torch.tensor(m, dtype=torch.int64, device=DEVICE)
    links = Links(numbers(lineage.parents), numbers(lineage.source), numbers(lineage.keep))
    kept = windows.to(DEVICE)
    keep_windows(x.to(DEVICE), kept, windows[0].numel(), links, numbers(kept_spans(lineage)))

    assert torch.equal(kept.cpu(), expected)


def choices(rows: int, top: int) -> tuple[Tensor, Tensor]:
    return torch.full((rows, top), torch.nan, device=DEVICE), torch.zeros(rows, top, dtype=torch.int64, device=DEVICE)


@pytest.mark.parametrize("rows, count, top, normalise", [(5, 13, 3, True), (3, 64, 8, False), (1, 5, 5, True)])
def test_routes_are_those_of_the_reference(rows, count, top, normalise):
    logits = spread(torch.randn(rows, count))
    weights, chosen = choices(rows, top)
    route_into(weights, chosen, logits.to(DEVICE), normalise, 2.5)
    expected, experts = moe.route_rows(logits, top, normalise, 2.5)

    close(weights.cpu(), expected)
    assert torch.equal(chosen.cpu(), experts)


@pytest.mark.parametrize("rows, count, top, groups, used", [(5, 13, 3, 1, 1), (7, 15, 4, 5, 2), (3, 16, 5, 4, 4)])
def test_routes_of_sigmoid_scores(rows, count, top, groups, used):
    """Biases are large enough to change the choice of experts."""
    logits, bias = spread(torch.randn(rows, count)), torch.randn(count) / 8
    weights, chosen = choices(rows, top)
    route_sigmoid_into(weights, chosen, logits.to(DEVICE), bias.to(DEVICE), True, 2.5, groups, used)
    expected, experts = moe.route_sigmoid(logits, bias, top, True, 2.5, groups, used)

    close(weights.cpu(), expected)
    assert torch.equal(chosen.cpu(), experts)


def test_experts_are_distinct_where_weights_vanish():
    """Beside a certain expert all others have weight 0; they are still chosen once each."""
    weights, chosen = choices(1, 5)
    route_into(weights, chosen, torch.arange(7.0, device=DEVICE)[None] * 200, True, 1.0)

    assert weights.tolist() == [[1, 0, 0, 0, 0]]
    assert chosen[0, 0] == 6 and len(set(chosen[0].tolist())) == 5


def test_columns_of_a_state_fit_in_one_warp():
    assert delta_rule.COLUMNS * 4 == 32
