"""Operations of single rows on native kernels: the bits of the reference, whichever value is written."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Add, Columns, Input, Model, Op, Tap
from spec_kernels.model.reference import Reference
from spec_kernels.native.executor import Native

from tests.native.weightless import Nothing

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
WIDTH, ROWS = 37, 5


def run(executor, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    batch = ForwardBatch(
        None, torch.arange(ROWS), [SequenceRows(None, 0, ROWS, 0)], inputs=inputs, taps=("x", "y", "out")
    )
    return executor.run(batch)


def assert_equal(op: Op) -> None:
    """Raise AssertionError where a value of the native program is not that of the reference after an operation."""
    torch.manual_seed(0)
    inputs = {name: torch.randn(ROWS, WIDTH) for name in "xy"}
    taps = (Tap("x", "x"), Tap("y", "y"), Tap(op.out, "out"))
    model = Model((Input("x", WIDTH), Input("y", WIDTH), op, *taps))
    ours, theirs = (run(of(model, Nothing()), inputs) for of in (Native, Reference))

    for name, rows in theirs.items():
        assert torch.equal(ours[name], rows), name


@pytest.mark.parametrize("scale", [1.0, 0.5**0.5, -3.0])
@pytest.mark.parametrize("out", ["x", "y", "z"])
@pytest.mark.parametrize("x, y", [("x", "y"), ("y", "x"), ("x", "x")])
def test_a_sum_may_be_written_to_one_of_its_inputs(x, y, out, scale):
    assert_equal(Add(x, y, out, scale))


@pytest.mark.parametrize("start, width", [(0, WIDTH), (0, 1), (17, 20), (WIDTH - 1, 1)])
def test_columns_are_those_of_the_value(start, width):
    assert_equal(Columns("x", "z", start, width))
