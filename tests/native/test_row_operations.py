"""Operations of single rows on native kernels: the bits of the reference, whichever value is written."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Add, AddRelative, AddRows, BlockConv, Columns, Gate, Input, Model, Op, Rotate, Tap
from spec_kernels.model.reference import Reference
from spec_kernels.model.shapes import HeadShape
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


@pytest.mark.parametrize("by", ["sigmoid", "silu", "softplus", "identity"])
@pytest.mark.parametrize("gates", [1, 4, 60])
def test_gates_apply_to_equal_parts_of_a_row(gates, by):
    """Native and reference round their functions apart; each row has the same bits in any number of rows."""
    torch.manual_seed(0)
    inputs = {"x": torch.randn(ROWS, 60), "gate": 4 * torch.randn(ROWS, gates)}
    model = Model((Input("x", 60), Input("gate", gates), Gate("x", "gate", "x", by), Tap("x", "x")))
    ours, theirs = (run(of(model, Nothing()), inputs)["x"] for of in (Native, Reference))
    parts = inputs["x"].double().view(ROWS, gates, -1)
    functions = {"sigmoid": torch.sigmoid, "silu": torch.nn.functional.silu, "softplus": torch.nn.functional.softplus}
    functions["identity"] = lambda gates: gates
    expected = (parts * functions[by](inputs["gate"].double())[:, :, None]).view(ROWS, 60)

    for rows in (ours, theirs):
        assert (rows - expected).abs().max() <= 1e-6 * expected.abs().max()


def test_a_sum_relative_to_the_size_of_a_row():
    """Also of a row of zeros, which stays."""
    torch.manual_seed(0)
    inputs = {"x": torch.randn(ROWS, WIDTH) * torch.tensor([1e-3, 1.0, 1e3, 0.0, 1.0])[:, None]}
    inputs["y"] = torch.randn(ROWS, WIDTH)
    model = Model((Input("x", WIDTH), Input("y", WIDTH), AddRelative("x", "y"), Tap("x", "x")))
    wide = {name: rows.double() for name, rows in inputs.items()}
    expected = wide["x"] + wide["x"].square().mean(1, keepdim=True).sqrt() * wide["y"]

    for of in (Native, Reference):
        assert torch.allclose(run(of(model, Nothing()), inputs)["x"].double(), expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("taps", [1, 2, 4])
def test_a_block_convolution_without_a_kernel_is_its_base(taps):
    """Two sequences: rows before the first of each are zero."""
    torch.manual_seed(0)
    base, x = torch.randn(taps, WIDTH), torch.randn(ROWS, WIDTH)
    model = Model((Input("x", WIDTH), BlockConv("x", None, "out", base), Tap("out", "out")))
    sequences = [SequenceRows(None, 0, 2, 0), SequenceRows(None, 2, 3, 0)]
    batch = ForwardBatch(None, torch.arange(ROWS), sequences, inputs={"x": x}, taps=("out",))
    expected = torch.stack(
        [sum(x[r - t] * base[t] for t in range(taps) if r - t >= (0 if r < 2 else 2)) for r in range(ROWS)]
    )

    for of in (Native, Reference):
        assert torch.allclose(of(model, Nothing()).run(batch)["out"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start, width", [(0, WIDTH), (0, 1), (17, 20), (WIDTH - 1, 1)])
def test_columns_are_those_of_the_value(start, width):
    assert_equal(Columns("x", "z", start, width))


@pytest.mark.parametrize("scales", [{}, {0: 1.0}, {1: 2.0, 4: -3.0}])
def test_rows_are_added_where_they_are_given(scales):
    """Of the second index; a batch without rows of the first."""
    torch.manual_seed(0)
    added = {row: torch.randn(WIDTH) * scale for row, scale in scales.items()}
    x = torch.randn(ROWS, WIDTH)
    model = Model((Input("x", WIDTH), AddRows("x", 1), Tap("x", "x")))
    sequences = [SequenceRows(None, 0, ROWS, 0)]
    batch = ForwardBatch(None, torch.arange(ROWS), sequences, inputs={"x": x}, taps=("x",), added=({}, added))
    expected = x.clone()
    for row, vector in added.items():
        expected[row] += vector

    assert all(of(model, Nothing()).run(batch)["x"].equal(expected) for of in (Native, Reference))


@pytest.mark.parametrize("pairs", [1, 8])
def test_every_pair_may_have_a_position_of_its_own(pairs):
    """Heads of 16 dimensions with 8 pairs that rotate; equal positions give the bits of one position for a row."""
    torch.manual_seed(0)
    shape = HeadShape(heads=2, kv_heads=1, dim=20, rotary_dim=16, scale=0.25)
    turns = torch.rand(8)
    model = Model((Input("x", 40), Rotate("x", shape), Tap("x", "x")), turns)
    x, places = torch.randn(ROWS, 40), torch.randint(0, 4, (ROWS, pairs))
    each = places.expand(ROWS, 8).contiguous()
    batch = lambda positions: ForwardBatch(
        None, positions, [SequenceRows(None, 0, ROWS, 0)], inputs={"x": x}, taps=("x",)
    )
    ours, theirs = (of(model, Nothing()).run(batch(each))["x"] for of in (Native, Reference))

    assert ours.equal(theirs)
    if pairs == 1:
        assert ours.equal(Native(model, Nothing()).run(batch(places[:, 0].contiguous()))["x"])
