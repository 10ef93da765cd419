"""Selects the form of an operator: plain torch on a CPU, triton on CUDA. Nothing else makes this choice."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


class KernelsMissing(RuntimeError):
    """Tensors are on a device whose kernels cannot be imported. ``hint`` says what to do."""

    def __init__(self, op: str) -> None:
        self.hint = "pip install 'spec-core[triton]', or run on the CPU: --device cpu"
        super().__init__(f"{op} on CUDA tensors is a triton kernel, and triton cannot be imported; {self.hint}")


def by_device(reference: Callable[P, T]) -> Callable[P, T]:
    """The operator that is ``reference`` on a CPU and its namesake in the folder's ``triton.py`` on CUDA.

    Raises KernelsMissing for CUDA tensors without triton: there is no silent fallback to plain torch.
    """

    @functools.wraps(reference)
    def op(*args: P.args, **kwargs: P.kwargs) -> T:
        if on_cuda((*args, *kwargs.values())):
            return twin(reference)(*args, **kwargs)
        return reference(*args, **kwargs)

    return op


def on_cuda(arguments: Iterable[Any]) -> bool:
    """Whether any tensor is on CUDA; operators themselves refuse mixed devices."""
    return any(isinstance(argument, Tensor) and argument.is_cuda for argument in arguments)


@functools.cache
def twin(reference: Callable[P, T]) -> Callable[P, T]:
    """The triton form of a reference operator. Raises KernelsMissing."""
    module = reference.__module__.replace(".reference", ".triton")
    try:
        return getattr(importlib.import_module(module), reference.__name__)
    except ModuleNotFoundError as missing:
        if missing.name != "triton":
            raise
        raise KernelsMissing(reference.__name__) from missing


def missing(device: torch.device) -> bool:
    """Whether operators have no form for a device, so that callers can refuse before loading."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is None


def in_use() -> str:
    """The forms of operators on this machine, for ``spec env``."""
    forms = ["reference (plain torch) on cpu"]
    if torch.cuda.is_available():
        forms.append(f"{'none (triton is not installed)' if missing(torch.device('cuda')) else 'triton'} on cuda")
    return ", ".join(forms)
