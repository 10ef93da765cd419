"""Makes triton's interpreter faster: it prepares its language anew for every function that a kernel calls.

The first call of a module's function leaves the language prepared, so later ones need not.
"""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(autouse=True, scope="session")
def language_is_prepared_once():
    if importlib.util.find_spec("triton") is None:
        return
    from triton.runtime.interpreter import InterpretedFunction

    prepare, modules = InterpretedFunction.__call__, set()

    def call(function, *arguments, **keywords):
        if function.fn.__module__ in modules:
            return function.rewrite()(*arguments, **keywords)
        modules.add(function.fn.__module__)
        return prepare(function, *arguments, **keywords)

    InterpretedFunction.__call__ = call
