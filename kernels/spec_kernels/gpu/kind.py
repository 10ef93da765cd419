"""The executor of GPUs before weights are read. Imports triton only to load it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from spec_kernels.gpu import support
from spec_kernels.gpu.forms import FORMS
from spec_kernels.gpu.tiles import PAGE
from spec_kernels.model.executor import ExecutorRequest, MemoryPlan
from spec_kernels.model.ops import GLU, Linear, Mixture, Model, embedding_table
from spec_kernels.model.source import Shape, TensorSource

if TYPE_CHECKING:
    from spec_kernels.gpu.executor import Gpu

LOGIT_ROWS = 64
"""Rows of logits that a plan of memory counts for a step."""


class GpuKind:
    """See ``ExecutorKind``."""

    name, device_type, batch_device = "gpu", "cuda", "cpu"
    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    threaded, shows_cache = False, True
    layer_max: ClassVar[Mapping[str, int]] = {}

    def problem(self, model: Model, request: ExecutorRequest) -> str | None:
        if problem := support.problem(request.device, request.dtype) or support.misfit(model, request.dtype):
            return problem
        return None if request.positions else "GPU kernels have caches of a fixed size, which is not known here"

    def plan(self, model: Model, tensors: Iterable[tuple[str, Shape]], request: ExecutorRequest) -> MemoryPlan:
        size = request.dtype.itemsize
        weights = sum(_weight_bytes(stored, shape, size) for stored, shape in tensors)
        row, windowed = model.row_numbers * size, model.windowed_numbers * size
        return MemoryPlan(weights, row, _step_bytes(model), windowed, PAGE)

    def describe_plan(self, request: ExecutorRequest) -> str:
        return f"{support.describe_steps()})"

    def load(self, model: Model, source: TensorSource, request: ExecutorRequest) -> Gpu:
        from spec_kernels.gpu.executor import Gpu

        gpu = Gpu(model, source, request.dtype, request.device, request.positions)
        if request.device.type == "cuda":
            gpu.prepare()
        return gpu


def _weight_bytes(stored: str, shape: Shape, size: int) -> int:
    """Bytes of a tensor: in the blocks of its file if they have a form here, else numbers of this size."""
    if len(shape) > 1 and stored in FORMS:
        return FORMS[stored].bytes_of(math.prod(shape[:-1]), shape[-1])
    return math.prod(shape) * size


def _step_bytes(model: Model) -> int:
    """Memory of the largest step: results of attention, activations, logits, records of drafts."""
    table = embedding_table(model)
    vocabulary, width = (0, 0) if table is None else (table.n, table.k)
    records = 0 if model.recurrent is None else model.recurring * model.recurrent.record_bytes
    row = 4 * (8 * width + 3 * _inner_width(model)) + records
    return support.SUMS_BYTES + support.ROWS_MAX * row + LOGIT_ROWS * 4 * vocabulary


def _inner_width(model: Model) -> int:
    """The largest width inside a feed-forward layer."""
    gates = {op.gate for op in model.ops if isinstance(op, GLU)}
    widths = [
        weight.n
        for op in model.ops
        if isinstance(op, Linear)
        for out, weight in zip(op.outs, op.weights, strict=True)
        if out in gates
    ]
    return max([*widths, *(op.up.n for op in model.ops if isinstance(op, Mixture))], default=0)
