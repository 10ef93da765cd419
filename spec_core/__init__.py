"""Speculative decoding methods as plugins: five hooks, one loop, the target's own text.

``load`` a target, make a ``Run`` with some methods, and iterate over ``generate``. torch is imported when one of these
names is first used, not by ``import spec_core`` (``spec_core.lazy``); ``__init__.pyi`` lists them.
"""

from __future__ import annotations

from spec_core.hookspecs import CONTRACT as CONTRACT
from spec_core.hookspecs import hookimpl as hookimpl
from spec_core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(globals())
