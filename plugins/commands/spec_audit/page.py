"""The report of an audit as one HTML page."""

from __future__ import annotations

from pathlib import Path

from spec_commands.html_page import render_page

from spec_audit.table import summary
from spec_audit.verdict import FAILS, Result


def report_page(result: Result) -> str:
    """The whole page."""
    template = Path(__file__).parent / "report.html"
    return render_page(template, result=result, summary=summary(result), faults=result.with_status(FAILS))
