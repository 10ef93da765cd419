"""Memory and tensors that an object keeps alive through fields and containers."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

ATOMS = (int, float, complex, bool, str, bytes, type(None), range, slice)
OUTSIDE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, memoryview)


def reachable_objects(root: Any, outside: Iterable[Any] = ()) -> Iterator[Any]:
    """Every object that ``root`` keeps alive, once, except ``outside`` and objects that only those keep alive."""
    seen = {id(o) for o in outside}
    queue = deque([root])
    while queue:
        item = queue.popleft()
        if id(item) in seen or isinstance(item, OUTSIDE):
            continue
        seen.add(id(item))
        yield item
        queue.extend(_members(item))


def _members(item: Any) -> Iterable[Any]:
    if isinstance(item, (*ATOMS, np.ndarray, torch.Tensor)):
        return ()
    if isinstance(item, Mapping):
        return [*item.keys(), *item.values()]
    if isinstance(item, (list, tuple, set, frozenset, deque)):
        return item
    slots = [name for cls in type(item).__mro__ for name in getattr(cls, "__slots__", ()) if name != "__weakref__"]
    fields = [getattr(item, name, None) for name in ([slots] if isinstance(slots, str) else slots)]
    return [*fields, *vars(item).values()] if hasattr(item, "__dict__") else fields


def weight(root: Any, outside: Iterable[Any] = ()) -> int:
    """Bytes kept alive by ``root``; a tensor counts with its whole storage, each storage once."""
    storages: dict[int, int] = {}
    total = 0
    for item in reachable_objects(root, outside):
        if isinstance(item, torch.Tensor):
            storages[item.untyped_storage().data_ptr()] = item.untyped_storage().nbytes()
            total += 64
        elif isinstance(item, np.ndarray):
            whole = item if item.base is None or not isinstance(item.base, np.ndarray) else item.base
            storages[whole.__array_interface__["data"][0]] = whole.nbytes
            total += 64
        else:
            total += sys.getsizeof(item, 64)
    return total + sum(storages.values())


def tensors(root: Any) -> int:
    """Number of elements in the tensors and arrays that ``root`` keeps alive."""
    kinds = (torch.Tensor, np.ndarray)
    return sum(
        t.numel() if isinstance(t, torch.Tensor) else t.size for t in reachable_objects(root) if isinstance(t, kinds)
    )
