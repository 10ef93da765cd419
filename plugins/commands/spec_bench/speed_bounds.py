"""The bounds that follow from the figures of ``spec bench step``, and the file that keeps the costs."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from spec_commands import common
from spec_commands.environment import environment
from spec_commands.json_text import format_json
from spec_costs import file
from spec_costs.curve import Curve
from spec_costs.file import Costs, DraftCost, StepCost
from spec_costs.limits import Limits, limits

from spec_bench.step import Cost
from spec_core import Target


def limits_of(costs: list[Cost], drafts: list[DraftCost], draft_max: int) -> list[Limits]:
    """Limits at every depth and batch: for drafts that cost nothing, then, with batch 1, for each measured method.

    A curve without steps of one row says nothing about speedups, and is left out.
    """
    result = []
    for (depth, batch), group in groupby(costs, key=lambda c: (c.depth, c.batch)):
        curve = Curve({c.rows: c.step for c in group})
        longest = min(draft_max, max(curve.seconds) - 1)
        if 1 not in curve.seconds or longest < 1:
            continue
        result.append(limits(curve, longest, batch, depth))
        for method in dict.fromkeys(d.method for d in drafts) if batch == 1 else ():
            result.append(_of(method, drafts, curve, longest, depth))
    return result


def _of(method: str, drafts: list[DraftCost], curve: Curve, longest: int, depth: int) -> Limits:
    """Limits of a method, up to the longest draft that it made."""
    costs_by_drafts = {d.drafts: d.seconds for d in drafts if d.method == method}
    return limits(curve, min(longest, max(costs_by_drafts)), 1, depth, method, Curve({0: 0.0} | costs_by_drafts))


def write_bounds(out: Path, target: Target, costs: list[Cost], drafts: list[DraftCost], load: dict[str, Any]) -> None:
    """Write a file of costs. Raises UsageError if it cannot be written."""
    steps = [StepCost(c.batch, c.depth, c.rows, c.step) for c in costs]
    body = file.as_json(Costs(file.machine(target), steps, drafts), environment=environment(), load=load)
    try:
        common.write_file(out, (format_json(body, indent=1) + "\n").encode())
    except OSError as error:
        raise common.write_error(out, error) from error
    common.print_note(f"written: {out}")
