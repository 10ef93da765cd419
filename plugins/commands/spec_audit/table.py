"""The table of promises on a terminal."""

from __future__ import annotations

from spec_commands.printing import print_line
from spec_commands.tables import Cells, show_table

from spec_audit.verdict import FAILS, HOLDS, SKIPPED, Result, Speed


def show_result(result: Result) -> None:
    """Print the table, the requests that show each fault, and the speeds."""
    for section in result.sections:
        rows = [(v.promise, v.status, "; ".join(filter(None, (v.detail, v.power)))) for v in section.verdicts]
        show_table(Cells((section.title, "result", "details"), rows, left=(section.title, "result", "details")))
    if result.speeds:
        heads = ("Speed", "at once", "with drafts", "95 %")
        show_table(Cells(heads, [_speed(speed) for speed in result.speeds], left=("Speed",)))
    for verdict in result.with_status(FAILS):
        print_line(f"{verdict.promise}: with drafts, then without:")
        for line in verdict.requests:
            print_line(f"  {line}")
        print_line()
    print_line(summary(result))


def summary(result: Result) -> str:
    """The result in one line."""
    failing = result.with_status(FAILS)
    names = f": {', '.join(verdict.promise for verdict in failing)}" if failing else ""
    counts = f"{len(result.with_status(HOLDS))} hold, {len(result.with_status(SKIPPED))} were skipped"
    return f"{len(failing)} of {len(result.verdicts)} promises fail{names}; {counts}"


def _speed(speed: Speed) -> tuple[str, str, str, str]:
    return speed.category, str(speed.at_once), f"{speed.ratio:.2f}×", f"{speed.low:.2f} to {speed.high:.2f}"
