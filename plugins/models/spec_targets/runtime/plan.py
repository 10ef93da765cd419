"""A model before its weights are read: one list of operations, one executor, and the memory that it will need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import attrs
import torch
from spec_kernels.executors import ExecutorMisfit, choose_executor, setting_values
from spec_kernels.machine import free_bytes, trim_memory
from spec_kernels.model.deferred import read_model
from spec_kernels.model.executor import AUTO, Executor, ExecutorKind, ExecutorRequest, MemoryPlan
from spec_kernels.model.ops import Model
from spec_kernels.model.source import Shape, TensorSubset
from torch import Tensor

from spec_core.errors import UsageError, nearest_names
from spec_core.toolkit import use_threads
from spec_targets.architectures.config import Config
from spec_targets.architectures.rotation import MAX_POSITIONS, first_table, tables
from spec_targets.formats.mapped import release_pages, release_rows
from spec_targets.runtime.thread_choice import choose_threads
from spec_targets.runtime.weights import Weights, check_tensors, has_block, record_trunk

DRAFTED_MAX = 256
"""Positions after a text of full length, for drafts."""


@attrs.frozen(eq=False)
class ModelPlan:
    """A checked model.

    model: its operations, without values. shapes: of the tensors that it reads; others are not read. state_bytes: of
    the recurrent state of a sequence.
    """

    weights: Weights
    model: Model
    shapes: Mapping[str, Shape]
    kind: ExecutorKind
    request: ExecutorRequest
    memory: MemoryPlan
    state_bytes: int = 0

    @property
    def options(self) -> dict[str, str]:
        """The requested settings, to load another model in the same way."""
        requested = {"kernels": self.request.kernels, **self.request.settings}
        names = ("kernels", "activations", "cache_dtype")
        return {name: requested[name] for name in names if requested.get(name, AUTO) != AUTO}

    def with_storage(self, storage: str) -> ModelPlan:
        """The plan with weights kept in another way. Raises UsageError if its executor cannot do that."""
        if storage == self.request.setting("weights"):
            return self
        _check_values({"weights": storage})
        request = replace(self.request, settings={**self.request.settings, "weights": storage})
        kind, request = _choose(self.model, request, self.weights.where)
        return attrs.evolve(self, kind=kind, request=request)

    def check_memory(self) -> None:
        """Refuse a model that does not fit in memory, before anything is allocated."""
        device, needed = self.request.device, self.memory.weights + self.state_bytes
        if needed > (free := free_bytes(str(device))):
            raise UsageError(
                f"{self.weights.where}: the weights need {needed >> 20} MiB, {free >> 20} MiB are free on {device}",
                hint="use a smaller model or dtype, or free memory",
            )

    def check_trunk(self) -> None:
        """Refuse a file without a trunk."""
        if not self.shapes:
            raise UsageError(
                f"{self.weights.where}: it has no trunk, only a NextN layer",
                hint="give it to a method that uses such a layer, with the model it belongs to",
            )

    def load(self, threads: int = 0) -> tuple[Executor, str]:
        """Read the weights. Returns the executor, and the reason for the number of threads, empty where it is not used.

        threads: of a CPU; 0 measures.
        """
        self.check_trunk()
        self.check_memory()
        on_cpu = self.request.device.type == "cpu"
        if threads and on_cpu:
            use_threads(threads)
        executor = load_executor(self)
        words = choose_threads(threads, executor, self.memory.weights) if on_cpu and self.kind.threaded else ""
        release_pages()
        trim_memory()
        return executor, words


def load_executor(plan: ModelPlan) -> Executor:
    """The executor of a plan, with its weights."""
    return plan.kind.load(read_model(plan.model), TensorSubset(plan.weights, plan.shapes), plan.request)


def plan_model(
    config: Config,
    weights: Weights,
    device: torch.device,
    dtype: torch.dtype,
    settings: Mapping[str, str],
    divisors: Tensor | None = None,
    context: int = 0,
) -> ModelPlan:
    """Check a model, and choose its executor. Reads no values of weights.

    settings: of executors, and ``kernels``, by name. Raises UsageError for a tensor that is missing, misshapen or not
    used, and for an executor that cannot run the model.
    """
    _check_values(settings)
    apart = config.nextn and not has_block(0, weights)
    ops, shapes = record_trunk(config, weights) if apart else check_tensors(config, weights)
    local = next(iter(tables(config, divisors, context)[1:]), None)
    model = Model(ops, *first_table(config, divisors, context), local=local)
    request = ExecutorRequest(
        device,
        dtype,
        settings.get("kernels", AUTO),
        {name: value for name, value in settings.items() if name != "kernels"},
        (context or min(config.context, MAX_POSITIONS)) + DRAFTED_MAX,
        release=release_rows,
    )
    kind, request = _choose(model, request, weights.where)
    stored = {} if apart else shapes
    memory = kind.plan(model, [(weights.type(name), shape) for name, shape in stored.items()], request)
    state_bytes = 0 if config.state is None else len(config.recurrent) * config.state.state_bytes
    return ModelPlan(weights, model, stored, kind, request, memory, state_bytes)


def _choose(model: Model, request: ExecutorRequest, where: str) -> tuple[ExecutorKind, ExecutorRequest]:
    """The executor of a model. Raises UsageError if none fits. where: the file's name."""
    try:
        return choose_executor(model, request)
    except ExecutorMisfit as misfit:
        prefix = f"{where}: " if misfit.reason.startswith("kernels=") else ""
        raise UsageError(f"{prefix}{misfit.reason}", hint=misfit.hint) from misfit


def _check_values(settings: Mapping[str, str]) -> None:
    for name, known in setting_values().items():
        if (value := settings.get(name, AUTO)) not in known:
            raise UsageError(f"{name} {value!r} is unknown", hint=f"give one of {nearest_names(str(value), known)}")
