"""The part of a target that a draft layer uses: an executor that can run the layer, and the matrices that it lacks.

A target that runs on an executor of this package shares it as ``target.layer_executor``: its weights are then not read
twice. Any other target is only asked for ``tensor(name)``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spec_kernels.executors import choose_executor
from spec_kernels.model.executor import AUTO, Executor, ExecutorRequest, LayerExecutor
from spec_kernels.model.ops import Model
from spec_kernels.model.source import FLOATS, TensorSource, bytes_of


def executor_of(target: Any) -> LayerExecutor:
    """The target's executor, or one for its tensors."""
    executor = getattr(target, "layer_executor", None)  # None too where only metadata were read
    return StandaloneExecutor(target) if executor is None else executor


class TargetTensors:
    """The tensors of a target by GGUF name, as a ``TensorSource``; float64 values become float32 in ``blocks``."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self._shapes: dict[str, tuple[int, ...] | None] = {}

    def shape(self, name: str) -> tuple[int, ...] | None:
        if name not in self._shapes:
            self._shapes[name] = self._read_shape(name)
        return self._shapes[name]

    def _read_shape(self, name: str) -> tuple[int, ...] | None:
        try:
            return tuple(self.target.tensor(name).shape)
        except KeyError:
            return None

    def type(self, name: str) -> str:
        return FLOATS.get(self.target.tensor(name).dtype, "F32")

    def load(self, name: str) -> Tensor:
        return self.target.tensor(name).detach()

    def blocks(self, name: str) -> Tensor:
        value = self.load(name).cpu()
        return bytes_of(value if value.dtype in FLOATS else value.float())


class StandaloneExecutor:
    """Executors for layers of a target that has none; float32 may replace the target's narrower dtype.

    Executors made one after the other share weights of equal names.
    """

    def __init__(self, target: Any) -> None:
        self.source: TensorSource = TargetTensors(target)
        self.device = torch.device(target.info.device)
        self.dtype = getattr(torch, target.info.dtype)
        self._made: dict[str, Executor] = {}

    def with_layers(self, model: Model, source: TensorSource) -> Executor:
        """An executor of this model."""
        kernels = AUTO if self.device.type == "cpu" else "reference"  # others need a target of their own kind
        kind, request = choose_executor(model, ExecutorRequest(self.device, self.dtype, kernels, widen=True))
        if kind.name not in self._made:
            self._made[kind.name] = kind.load(model, source, request)
            return self._made[kind.name]
        return self._made[kind.name].with_layers(model, source)
