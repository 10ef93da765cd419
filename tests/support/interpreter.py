"""Makes triton's interpreter faster: it does the same work anew for every call and every value.

- The language is prepared for every function that a kernel calls; the first call of a module's function leaves it
  prepared, so later ones need not.
- A type of blocks checks its shape and writes its name, a value counts its elements, and numpy's type of a type is
  looked up in a table that is made for it: each is done once for every type.
- Blocks of one shape are compared with each other in order to be broadcast.
- Sums and products of integers are computed again in 64 bits, for an assertion that only its debug mode makes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="session")
def fast_interpreter():
    if importlib.util.find_spec("triton") is None:
        return
    from triton.language import core
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    prepare_language_once(interpreter.InterpretedFunction)
    remember_types(core, interpreter)
    compare_shapes_first(TritonSemantic)
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=options.debug)


def prepare_language_once(function_class: Any) -> None:
    prepare, modules = function_class.__call__, set()

    def call(function, *arguments, **keywords):
        if function.fn.__module__ in modules:
            return function.rewrite()(*arguments, **keywords)
        modules.add(function.fn.__module__)
        return prepare(function, *arguments, **keywords)

    function_class.__call__ = call


def remember_types(core: Any, interpreter: Any) -> None:
    make_type, make_tensor = core.block_type.__init__, core.tensor.__init__
    types: dict[tuple, dict] = {}
    sizes: dict[str, tuple] = {}

    def init_type(self, element_ty, shape):
        key = element_ty.name, *(getattr(size, "value", size) for size in shape)
        if key not in types:
            make_type(self, element_ty, shape)
            types[key] = dict(vars(self))
        vars(self).update(types[key])

    def init_tensor(self, handle, type):
        if type.name not in sizes:
            make_tensor(self, handle, type)
            sizes[type.name] = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = sizes[type.name]

    core.block_type.__init__, core.tensor.__init__ = init_type, init_tensor
    interpreter._get_np_dtype = remember_by_name(interpreter._get_np_dtype)


def remember_by_name(look_up: Callable) -> Callable:
    known: dict[str, np.dtype] = {}

    def find(type):
        if type.name not in known:
            known[type.name] = look_up(type)
        return known[type.name]

    return find


def compare_shapes_first(semantic_class: Any) -> None:
    broadcast = semantic_class.broadcast_impl_value

    def broadcast_different(self, lhs, rhs):
        if lhs.type.is_block() == rhs.type.is_block() and lhs.shape.values == rhs.shape.values:
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    semantic_class.broadcast_impl_value = broadcast_different
