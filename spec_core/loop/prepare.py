"""The first step of a run: everything that can be refused is checked, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from spec_core.assembly.description import Description
from spec_core.contract.target import Target
from spec_core.loop.prepared import Prepared, prepare_plugins
from spec_core.loop.run import Run


def prepare(
    target: Target | Description | str | Path,
    methods: Iterable[Any] = (),
    rule: Any = None,
    rollback: Any = None,
    plugin_settings: Mapping[str, Mapping[str, Any]] | None = None,
    control: Any = None,
    **loading: Any,
) -> Prepared:
    """Check a run from metadata: its arguments are ``Run``'s; ``loading`` are fields of LoadSettings.

    target: a description lets several runs share one model. Raises UsageError, or Refused with every plugin's refusal.
    No weight is read before ``load`` of the result.
    """
    prepared = prepare_plugins(target, methods, rule, rollback, plugin_settings, control, **loading)
    return attrs.evolve(prepared, start=Run)
