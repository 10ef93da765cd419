"""Small tensors of a description whose values are read when the model is loaded.

A description is built once, without values: a tensor is a ``DeferredTensor``, and so is what torch computes from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.ops import Model, Op


class DeferredTensor(Tensor):
    """A tensor of zeros that take no memory. read: returns its values."""

    read: Callable[[], Tensor]

    @staticmethod
    def of(like: Tensor, read: Callable[[], Tensor]) -> DeferredTensor:
        """A tensor of this shape and dtype."""
        tensor = torch.Tensor._make_subclass(DeferredTensor, like)
        tensor.read = read
        return tensor

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """A tensor that is computed from a deferred one is deferred too."""
        keywords = dict(kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **keywords)
        if not isinstance(result, Tensor):
            return result
        return cls.of(result.as_subclass(Tensor), lambda: func(*read_values(args), **keywords))


class DeferredNumber(float):
    """A number of a description, 0 until it is read."""

    read: Callable[[], float]

    @classmethod
    def of(cls, read: Callable[[], float]) -> DeferredNumber:
        number = cls()
        number.read = read
        return number


def defer_tensor(shape: tuple[int, ...], read: Callable[[], Tensor]) -> Tensor:
    """A deferred tensor of this shape."""
    return DeferredTensor.of(torch.zeros(()).expand(shape), read)


def number_of(vector: Tensor) -> float:
    """The only value of a tensor, deferred if the tensor is."""
    if isinstance(vector, DeferredTensor):
        return DeferredNumber.of(lambda: float(vector.read()))
    return float(vector)


def read_model(model: Model) -> Model:
    """The model with the values of its small tensors."""
    return replace(model, ops=tuple(map(_read_op, model.ops)))


def _read_op(op: Op) -> Op:
    values = {f.name: getattr(op, f.name) for f in fields(op)}
    read = {name: read_values(value) for name, value in values.items()}
    changed = {name: value for name, value in read.items() if value is not values[name]}
    return replace(op, **changed) if changed else op


def read_values(value: Any) -> Any:
    """A value, or the values in a list or tuple, read if they are deferred."""
    if isinstance(value, DeferredTensor | DeferredNumber):
        return value.read()
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        read = [read_values(part) for part in value]
        return value if all(a is b for a, b in zip(read, value, strict=True)) else type(value)(read)
    return value
