"""Mixtures of experts on GPU kernels: each kernel against its naive twin, and whole models."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.forms import FORMS
from spec_kernels.gpu.mixture import Lines, multiply_experts, multiply_gated_experts, sort_lines
from spec_kernels.gpu.repack import Matrix

from benchmarks.dense_shapes import random_blocks
from spec_core import load
from tests.support.golden import golden
from tests.support.gpu_twins import naive_multiply_experts, naive_multiply_gated_experts, naive_sort_lines
from tests.targets.drive import fresh

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = [(1, 2, 5), (7, 3, 70), (200, 2, 3)]
"""Rows, experts of a row, experts: tiles of one line, of a few, and full ones."""


def lines_of(rows: int, used: int, experts: int) -> Lines:
    torch.manual_seed(rows)
    lines = Lines.empty(rows, used, experts, DEVICE)
    lines.chosen.copy_(torch.rand(rows, experts, device=DEVICE).topk(used).indices)
    lines.shares.copy_(torch.rand(rows, used))
    naive_sort_lines(lines)
    return lines


@pytest.mark.parametrize("sizes", SIZES)
def test_lines_are_sorted_by_expert(sizes):
    lines, twin = lines_of(*sizes), lines_of(*sizes)
    lines.order.fill_(-1)
    sort_lines(lines)

    assert torch.equal(lines.order, twin.order)
    assert torch.equal(lines.counts, twin.counts)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("biased", [False, True])
def test_experts_are_multiplied(sizes, biased):
    rows, used, experts = sizes
    lines, n, k = lines_of(*sizes), 40, 33
    randn = lambda *shape: torch.randn(shape, device=DEVICE)
    x, inner = randn(rows + 3, k), randn(rows * used, n)
    gates, ups, downs = (Matrix.of(randn(experts * a, b)) for a, b in ((n, k), (n, k), (k, n)))
    biases = (randn(experts, n), randn(experts, n)) if biased else None
    results = []
    for gated, down in (
        (multiply_gated_experts, multiply_experts),
        (naive_multiply_gated_experts, naive_multiply_experts),
    ):
        first = torch.full((rows * used, n), float("nan"), device=DEVICE)
        second = torch.full((used, rows + 3, k), float("nan"), device=DEVICE)
        gated(x, lines, (gates, ups), biases, first, "clamped_glu" if biased else "silu_glu")
        down(inner, lines, downs, randn(experts, k).fill_(0.5) if biased else None, second)
        results.append((first, second))
    for kernel, twin in zip(*results, strict=True):
        assert torch.equal(kernel.isnan(), twin.isnan())
        assert (kernel - twin).nan_to_num().norm() <= 3e-6 * twin.nan_to_num().norm()


def matrix_of(type: str, n: int, k: int) -> Matrix:
    matrix = Matrix.empty(FORMS[type], n, k, torch.float32, DEVICE)
    matrix.write(0, random_blocks(type, n, k, torch.Generator().manual_seed(n)).to(DEVICE))
    return matrix


@pytest.mark.parametrize("types", [("Q4_K", "Q6_K", "Q5_0"), ("MXFP4", "MXFP4", "MXFP4"), ("Q8_0", "Q4_1", "Q5_K")])
def test_experts_in_blocks(types):
    """Gate, up and down of different types."""
    lines, k, n = lines_of(40, 2, 3), 256, 256
    gate, up, down = (matrix_of(type, 3 * 256, 256) for type in types)
    x, inner = torch.randn(64, k, device=DEVICE), torch.randn(80, n, device=DEVICE)
    results = []
    for gated, last in (
        (multiply_gated_experts, multiply_experts), (naive_multiply_gated_experts, naive_multiply_experts),
    ):  # fmt: skip
        first, second = torch.zeros(80, n, device=DEVICE), torch.zeros(2, 64, k, device=DEVICE)
        gated(x, lines, (gate, up), None, first, "silu_glu")
        last(inner, lines, down, None, second)
        results.append((first, second))
    for kernel, twin in zip(*results, strict=True):
        assert (kernel - twin).norm() <= 3e-6 * twin.norm()


def test_golden_logits_of_a_mixture_and_bits_of_a_row_alone():
    folder = golden("gpt-oss")
    target = load(folder / "model-f32.gguf", kernels="gpu", device=DEVICE.type, dtype="float32")
    tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text())
    tokens = tensors["prompt_37"].tolist()
    rows = fresh(target, tokens).logits.cpu()
    bar = 4 * max(facts[kind]["logits_37"] for kind in ("rounding_floor", "rotary_floor") if kind in facts)

    assert (tensors["logits_37"] - rows).abs().max() <= bar
    alone = fresh(target, tokens[:5])
    assert torch.equal(alone.logits.cpu()[4], rows[4])
