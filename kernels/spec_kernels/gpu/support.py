"""Checks that the kernels of this package can run a model, before weights are read."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from spec_kernels.gpu.tiles import tile_of
from spec_kernels.model import ops
from spec_kernels.model.ops import Model
from spec_kernels.ops.device_function import is_interpreted

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS_MAX = 512
"""Rows of a chunk."""
SUMS_BYTES = 512 << 20
"""Max memory for the results of pieces of attention."""


LACKING: tuple[tuple[Callable[[ops.Op], Any], str], ...] = (
    (
        lambda op: isinstance(op, ops.StreamWeights | ops.StreamSum | ops.StreamMix),
        "hyper-connections, which mix several residual streams, have no GPU kernel",
    ),
    (
        lambda op: isinstance(op, ops.SparseIndex) or (isinstance(op, ops.Attend) and op.pools is not None),
        "a sparse index has no GPU kernel",
    ),
    (
        lambda op: isinstance(op, ops.GLU | ops.Mixture) and op.limit,
        "gated units with a limit have no GPU kernel",
    ),
    (
        lambda op: isinstance(op, ops.Delta) and op.floor,
        "gated delta nets with a lowest decay have no GPU kernel",
    ),
    (lambda op: isinstance(op, ops.Norm) and op.centred, "norms of centred rows have no GPU kernel"),
    (
        lambda op: isinstance(op, ops.Mixture) and op.factors is not None and op.experts.sigmoid,
        "experts with sigmoid scores and factors have no GPU kernel",
    ),
)
"""Operations without a kernel, and what is said of them."""


def misfit(model: Model, dtype: torch.dtype) -> str | None:
    """The first operation of a model that has no kernel, in words; None if all have one."""
    return next((words for op in model.ops if (words := _operation_misfit(op, dtype))), None)


def _operation_misfit(op: ops.Op, dtype: torch.dtype) -> str | None:
    if isinstance(op, ops.Attend):
        most, group = tile_of(op.shape, dtype)
        if group > most:
            return f"{group} query heads share a key head of {op.shape.dim}, GPU kernels run at most {most}"
    return next((words for lacks, words in LACKING if lacks(op)), None)


def describe_steps() -> str:
    """How steps run here, in words."""
    steps = "in triton's interpreter" if is_interpreted() else "captured as graphs"
    return f"gpu (triton, steps {steps}"


def problem(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why no model runs on these kernels here; None if one can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install 'spec-core[triton]', or run on the CPU with --device cpu"
    if device.type != "cuda" and not is_interpreted():
        return f"GPU kernels are for CUDA devices, this is {device}"
    if dtype not in DTYPES:
        return f"GPU kernels compute in float32, bfloat16 or float16, dtype is {str(dtype).removeprefix('torch.')}"
    if device.type == "cuda" and dtype == torch.bfloat16 and torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} has no bfloat16"
    return None
