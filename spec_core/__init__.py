"""Speculative decoding methods as plugins: five hooks, one loop, the target's own text.

``load`` a target, make a ``Run`` with some methods, and iterate over what ``generate`` emits. torch is imported when
one of these is first used, not by ``import spec_core``; what must come before that is done then (``spec_core.early``).
"""

from __future__ import annotations

import importlib
from typing import Any

from spec_core.early import prepare
from spec_core.hookspecs import CONTRACT, hookimpl

_WHERE = {
    "Batch": "values",
    "Checked": "values",
    "Compat": "values",
    "Draft": "values",
    "Emitted": "request",
    "Needs": "values",
    "Part": "step",
    "PluginError": "errors",
    "Refusal": "values",
    "Refused": "errors",
    "Request": "request",
    "Result": "request",
    "Rows": "values",
    "Run": "run",
    "RunSettings": "settings",
    "Sampling": "sampling",
    "Sequence": "sequence",
    "Slot": "sequence",
    "Span": "values",
    "SpecError": "errors",
    "Stash": "sequence",
    "StashKey": "sequence",
    "Step": "step",
    "Target": "target",
    "TargetInfo": "values",
    "Tokenizer": "target",
    "UsageError": "errors",
    "Verdict": "values",
    "load": "loading",
}

__all__ = ["CONTRACT", "hookimpl", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'spec_core' has no attribute {name!r}")
    prepare()
    value = getattr(importlib.import_module(f"spec_core.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
