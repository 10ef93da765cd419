"""Reading large vocabularies in C, with results equal to the Python code in ``formats`` and ``tokenizer``.

The extension is optional: without it ``module`` is None, and the Python code is used.
"""

from __future__ import annotations

try:
    from spec_targets.formats.native import _vocabulary as module  # type: ignore[attr-defined]
except ImportError:
    module = None
