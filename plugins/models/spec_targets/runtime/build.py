"""Chooses the executor of a model, and its settings."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, TypeAlias

import attrs
import torch
from spec_kernels import native
from spec_kernels.gpu import support
from spec_kernels.gpu.forms import FORMS
from spec_kernels.model.ops import Model
from spec_kernels.model.reference import Reference
from spec_kernels.model.source import ShapeRecorder, TensorSource, TensorSubset
from spec_kernels.native import native_cache
from spec_kernels.native.activations import AUTO, CHOICES
from spec_kernels.native.executor import Native, Options
from spec_kernels.native.limits import misfit
from spec_kernels.native.weights import planned_type
from torch import Tensor

from spec_core.errors import UsageError, nearest
from spec_targets.description.config import Config
from spec_targets.files.mapped import release_rows
from spec_targets.files.types import BLOCKS
from spec_targets.runtime.decoder import decoder
from spec_targets.runtime.weights import Weights

if TYPE_CHECKING:
    from spec_kernels.gpu.executor import Gpu

Executor: TypeAlias = "Native | Reference | Gpu"
KERNELS = ("auto", "native", "gpu", "reference")
WEIGHTS = ("auto", "q8_0")
LOGIT_ROWS = 64
"""Rows of logits that a plan of memory counts for a step."""


@attrs.frozen
class ExecutorOptions:
    """Execution settings, by their user-visible names. reason: of ``kernels``; requested: what the user named."""

    kernels: str = "auto"
    activations: str = AUTO
    cache_dtype: str = native_cache.AUTO
    weights: str = "auto"
    reason: str = ""
    requested: str = "auto"

    @property
    def native(self) -> bool:
        return self.kernels == "native"

    @property
    def gpu(self) -> bool:
        return self.kernels == "gpu"

    def describe(self, activations: object, cached: str) -> str:
        """A sentence for the user. activations, cached: those in use, or the requested ones if no weights were read.
        cached: the type of the KV cache."""
        if not self.native:
            return f"reference ({self.reason})"
        isa = native.instruction_sets()[0]
        return f"native ({isa}, activations {activations}, cache {cached}, weights {self.weights})"

    def options(self) -> dict[str, str]:
        """The requested settings, to load another model in the same way."""
        given = {"kernels": self.requested, "activations": self.activations, "cache_dtype": self.cache_dtype}
        return {name: value for name, value in given.items() if value != getattr(ExecutorOptions(), name)}


def choose(
    requested: ExecutorOptions, config: Config, weights: Weights, device: torch.device, dtype: torch.dtype
) -> ExecutorOptions:
    """The executor's settings: native on a CPU and gpu on CUDA if possible, unless another was requested.

    Reads no values of weights. Raises UsageError.
    """
    known = {"kernels": KERNELS, "activations": CHOICES, "cache_dtype": native_cache.CHOICES, "weights": WEIGHTS}
    for name, values in known.items():
        given = getattr(requested, name)
        if given not in values:
            raise UsageError(f"{name} {given!r} is unknown", hint=f"give one of {nearest(str(given), values)}")
    requested = attrs.evolve(requested, requested=requested.kernels)
    best = "native" if device.type == "cpu" else "gpu"
    kernels = best if requested.kernels == "auto" else requested.kernels
    reasons = {
        "native": lambda: unable(config, device, dtype),
        "gpu": lambda: unable_on_gpu(config, weights, device, dtype),
        "reference": lambda: "requested",
    }
    reason = reasons[kernels]()
    if reason is not None and requested.kernels in ("native", "gpu"):
        raise UsageError(
            f"{weights.where}: kernels={requested.kernels} was requested, but {reason}",
            hint="use kernels=auto, or change that",
        )
    if reason is None and kernels == "native":
        return attrs.evolve(requested, kernels=kernels)
    if reason is None:
        _check_unused(requested, "this runs on gpu kernels", str(dtype).removeprefix("torch."))
        return attrs.evolve(requested, kernels=kernels)
    _check_unused(requested, reason, str(dtype).removeprefix("torch."))
    return attrs.evolve(requested, kernels="reference", reason=reason)


def unable(config: Config, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a model cannot run natively; None if it can."""
    if device.type != "cpu":
        return f"native kernels are for the CPU, this is {device}"
    if dtype != torch.float32:
        return f"native kernels compute in float32, dtype is {str(dtype).removeprefix('torch.')}"
    widest = max((config.heads_of(i) for i in range(config.layers)), key=lambda shape: shape.dim)
    return native.problem() or misfit(widest, config.state, config.experts)


def unable_on_gpu(config: Config, weights: Weights, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a model cannot run on GPU kernels; None if it can."""
    return support.problem(device, dtype) or support.misfit(_description(config, ShapeRecorder(weights), weights))


def _description(config: Config, source: TensorSource, weights: Weights) -> Model:
    return Model(decoder(config, source, weights.interleaved))


def _check_unused(requested: ExecutorOptions, reason: str, dtype: str) -> None:
    """Refuse a setting of native kernels if these are not used. The reference's cache has the model's dtype."""
    for field in attrs.fields(ExecutorOptions):
        given, same = getattr(requested, field.name), field.name == "cache_dtype" and requested.cache_dtype == dtype
        if field.name not in ("kernels", "reason", "requested") and given != field.default and not same:
            raise UsageError(
                f"{field.name}={given} is for native kernels, which are not used here: {reason}",
                hint=f"leave {field.name} out",
            )


def executor(
    config: Config,
    weights: Weights,
    names: Collection[str],
    tables: list[tuple[Tensor, float]],
    choice: ExecutorOptions,
    dtype: torch.dtype,
    device: torch.device,
    positions: int,
) -> Executor:
    """The trunk, ready to run.

    names: of the tensors whose shapes were checked; others are not read. tables: see ``Model``.
    positions: max of a text and its drafts.
    """
    source = TensorSubset(weights, names)
    model = Model(_description(config, source, weights).ops, *tables[0], local=next(iter(tables[1:]), None))
    if choice.gpu:
        from spec_kernels.gpu.executor import Gpu  # imports triton, which other executors do not need

        return Gpu(model, source, dtype, device, positions)
    if choice.native:
        requantised = choice.weights == "q8_0"
        return Native(model, source, Options(choice.activations, choice.cache_dtype, requantised, release=release_rows))
    return Reference(model, source, dtype, device)


def describe_executor(choice: ExecutorOptions, executor: Executor | None) -> str:
    """A sentence on the executor, with counts of weights that could not keep their stored type."""
    if choice.gpu:
        return _describe_gpu(executor)
    if not isinstance(executor, Native):
        return choice.describe(choice.activations, choice.cache_dtype)
    words = choice.describe(executor.activations, executor.cache_type)
    return words + _conversions(executor.arena.converted_counts, "native")


def _describe_gpu(executor: Executor | None) -> str:
    steps = "in triton's interpreter" if support.is_interpreted() else "captured as graphs"
    words = f"gpu (triton, steps {steps}"
    if executor is None or isinstance(executor, (Native, Reference)):
        return f"{words})"
    dtype, matrices = str(executor.dtype).removeprefix("torch."), executor.shared.matrices
    blocks = f", blocks {' and '.join(matrices.types)}" if matrices.types else ""
    return f"{words}, weights and cache {dtype}{blocks})" + _conversions(matrices.conversions, "quantised")


def _conversions(counts: dict[str, int], form: str) -> str:
    """Conversions of weights, as ``Q3_K as F32``, in words."""
    words = ", ".join(f"{count} of {both}" for both, count in sorted(counts.items()))
    return f"; weights without a {form} form: {words}" if words else ""


def step_bytes(config: Config, choice: ExecutorOptions) -> int | None:
    """Memory of the largest step on GPU kernels: results of attention, activations, logits, records of drafts."""
    if not choice.gpu:
        return None
    records = 0 if config.state is None else len(config.recurrent) * config.state.record_bytes
    row = 4 * (8 * config.width + 3 * config.ff) + records
    return support.SUMS_BYTES + support.ROWS_MAX * row + LOGIT_ROWS * 4 * config.vocab


def planned_bytes(
    shapes: dict[str, tuple[int, ...]], weights: Weights, choice: ExecutorOptions, dtype: torch.dtype
) -> int:
    """Approximate memory of all weights: those of kernels stay as stored, if their type has a form there."""
    total = 0
    for name, shape in shapes.items():
        if choice.gpu and len(shape) > 1 and weights.type(name) in FORMS:
            total += FORMS[weights.type(name)].bytes_of(math.prod(shape[:-1]), shape[-1])
            continue
        numbers, native_matrix = math.prod(shape), choice.native and len(shape) > 1
        elements, size = BLOCKS[planned_type(weights.type(name))] if native_matrix else (1, dtype.itemsize)
        total += numbers // elements * size
    return total
