"""A device without a card: tensors that are made with ``device=`` count as its memory, and what makes the host wait
for it is recorded.

Kernels run in triton's interpreter, and copies are those of a CPU. Whatever reads memory of the device on the host, or
copies numbers there that lie in pages of the host, would wait on a card.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from triton.runtime import interpreter

READS = {"cpu", "numpy", "tolist", "item", "nonzero", "__bool__", "__int__", "__float__", "__index__", "__repr__"}
"""Methods that wait for memory of the device."""
COPIES = {"to", "copy_", "clone", "index_copy_", "__setitem__"}


class FakeDevice(TorchFunctionMode):
    """Records what happens to its memory. launches: names of kernels. waits, uploads: what the host waited for, and
    copies that it did not wait for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[str] = []
        self.waits: list[str] = []
        self.uploads = 0
        self._memory: dict[int, Any] = {}  # storages by their numbers, kept alive
        self._at_rest = False

    def clear(self) -> None:
        """Forget what was recorded."""
        self.launches.clear()
        self.waits.clear()
        self.uploads = 0

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor lies on the device."""
        return isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata in self._memory

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Nothing is recorded meanwhile."""
        before, self._at_rest = self._at_rest, True
        try:
            yield
        finally:
            self._at_rest = before

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._at_rest:
            return function(*args, **kwargs)
        with self.resting():
            self._record(function.__name__, args, kwargs)
            result = function(*args, **kwargs)
            on_host = function.__name__ in ("cpu", "from_numpy") or kwargs.get("pin_memory")
            if not on_host and (kwargs.get("device") is not None or any(map(self.holds, _tensors(args)))):
                for tensor in _tensors(result if isinstance(result, (list, tuple)) else [result]):
                    storage = tensor.untyped_storage()
                    self._memory[storage._cdata] = storage
        return result

    def _record(self, name: str, args: Any, kwargs: Any) -> None:
        first = args[0] if args else None
        if name in READS and self.holds(first):
            self.waits.append(name)
        elif name == "tensor" and kwargs.get("device") is not None:
            self.waits.append("tensor")
        elif name == "__getitem__" and self.holds(first) and any(map(_is_host_index, _items(args[1]))):
            self.waits.append("__getitem__ by numbers of the host")
        elif name == "to" and len(args) > 1 and isinstance(args[1], torch.device):
            if kwargs.get("non_blocking"):
                self.uploads += 1
            elif not self.holds(first):
                self.waits.append("to")
        elif name == "copy_" and self.holds(first) and not self.holds(args[1]):
            if kwargs.get("non_blocking"):
                self.uploads += 1
            else:
                self.waits.append("copy_")

    def __enter__(self) -> FakeDevice:
        super().__enter__()
        run = interpreter.GridExecutor.__call__

        def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self.launches.append(executor.fn.__name__)
            with self.resting():
                return run(executor, *args, **kwargs)

        self._patch = patch.object(interpreter.GridExecutor, "__call__", launch)
        self._patch.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._patch.stop()
        super().__exit__(*error)


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _items(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_host_index(index: Any) -> bool:
    return isinstance(index, (list, np.ndarray))
