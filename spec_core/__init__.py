"""Speculative decoding methods as plugins: five hooks, one loop, the target's own text.

``load`` a target, make a ``Run`` with some methods, and iterate over ``generate``. torch is imported when one of these
names is first used, not by ``import spec_core`` (``spec_core.lazy``).
"""

from __future__ import annotations

from spec_core.hookspecs import CONTRACT, hookimpl
from spec_core.lazy import lazy

_WHERE = {
    "Batch": "contract.batch",
    "TargetOutput": "contract.batch",
    "Compat": "contract.values",
    "Constraint": "contract.constraint",
    "Draft": "contract.values",
    "Emitted": "contract.request",
    "Matcher": "contract.matcher",
    "Needs": "contract.values",
    "Part": "contract.batch",
    "Piece": "contract.batch",
    "PluginError": "errors",
    "Refusal": "contract.values",
    "Refused": "errors",
    "Request": "contract.request",
    "Result": "contract.request",
    "Rows": "contract.rows",
    "Run": "loop.run",
    "RunSettings": "settings.tables",
    "Sampling": "sampling.parameters",
    "Sequence": "contract.sequence",
    "Slot": "contract.sequence",
    "Span": "contract.rows",
    "SpecError": "errors",
    "StepRecord": "contract.spent",
    "Stash": "contract.sequence",
    "StashKey": "contract.sequence",
    "Step": "contract.step",
    "Target": "contract.target",
    "TargetInfo": "contract.values",
    "Tokenizer": "contract.target",
    "DraftAttempt": "contract.spent",
    "UsageError": "errors",
    "Verdict": "contract.values",
    "load": "assembly.loading",
    "load_tokenizer": "assembly.loading",
    "prepare": "loop.prepare",
}

__all__ = ["CONTRACT", "hookimpl", *sorted(_WHERE)]


__getattr__ = lazy(globals(), _WHERE)


def __dir__() -> list[str]:
    return __all__
