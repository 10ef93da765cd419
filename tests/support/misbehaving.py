"""A product whose order of sums depends on the number of rows, their position and the threads, as in a BLAS.

Sizes of one to three rows, and the last row of odd sizes, are summed in another order than the rest; every order
changes with the number of threads. ``torch.mm`` and ``torch.bmm`` are what forwards multiply with; the other forms are
covered for code that calls them by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from spec_kernels.model import tiles
from torch import Tensor

_mm, _bmm = torch.mm, torch.bmm


def _pieces(a: Tensor, b: Tensor, pieces: int) -> Tensor:
    """a [..., R, k] b [..., k, n], summed in ``pieces`` pieces of the inner dimension."""
    multiply = _mm if a.dim() == 2 else _bmm
    step = max(1, -(-a.shape[-1] // pieces))
    parts = [multiply(a[..., i : i + step].contiguous(), b[..., i : i + step, :]) for i in range(0, a.shape[-1], step)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def badly(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a b, rows by the dimension before the last."""
    rows, pieces = a.shape[-2], 1 + torch.get_num_threads()
    if rows <= 3:
        result = _pieces(a, b, pieces + 1)
    elif rows % 2:
        result = torch.cat([_pieces(a, b, pieces)[..., :-1, :], _pieces(a, b, pieces + 1)[..., -1:, :]], -2)
    else:
        result = _pieces(a, b, pieces)
    return result if out is None else out.copy_(result)


def badly_added(bias: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1, out: Tensor | None = None) -> Tensor:
    result = alpha * badly(a, b)
    result = result if beta == 0 else result + beta * bias
    return result if out is None else out.copy_(result)


@contextmanager
def misbehaving() -> Iterator[None]:
    """Products of torch by name, within."""
    forms = {"mm": badly, "bmm": badly, "addmm": badly_added, "baddbmm": badly_added}
    tiles.forget_measurements()
    with mock.patch.multiple(torch, **forms):
        yield
    tiles.forget_measurements()
