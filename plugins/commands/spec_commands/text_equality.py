"""Whether drafts can change a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec_core import Run


def may_differ(run: Run, temperature: float) -> bool:
    """Whether texts with and without drafts may differ, as the rule or the target says."""
    private = any(c.compat.noise == "private" for c in run.plugins)
    return (private and temperature > 0) or bool(run.stats.lossy) or run.target.info.exact != "rows"
