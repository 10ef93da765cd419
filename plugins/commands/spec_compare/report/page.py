"""Writes the report of a comparison from a template; everything that comes from prompts or results is escaped."""

from __future__ import annotations

from pathlib import Path

from spec_commands.html_page import render_page, write_page

from spec_compare.figures.columns import interval_title
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import ALL
from spec_compare.figures.table import describe_difference, speedup_reading
from spec_compare.figures.timing_warnings import warning_counts
from spec_compare.report.conditions import facts, measured_from_to
from spec_compare.report.figures import figures
from spec_compare.report.pair_matrix import matrices
from spec_compare.report.reported_texts import sources, texts
from spec_compare.report.sections import sections

HERE = Path(__file__).parent
FEW = 6
"""Max lines on bounds, and contenders of a matrix, that are not folded."""


def write_report_page(path: Path, outcome: Outcome) -> None:
    """Write the report. Raises UsageError if the file cannot be written."""
    write_page(path, page(outcome))


def page(outcome: Outcome) -> str:
    """The whole page."""
    shown, hidden = texts(outcome)
    return render_page(
        HERE / "report.html",
        target=outcome.header.targets[0],
        measured=measured_from_to(outcome),
        facts=facts(outcome),
        sections=sections(outcome),
        matrices=matrices(outcome),
        level=interval_title(outcome.header.interval),
        intervals=any(pair.low is not None for pair in outcome.pairs),
        readings=[line for row in outcome.rows if row.family == ALL and (line := speedup_reading(row))],
        few=FEW,
        warnings=outcome.warnings,
        unknown=outcome.unknown,
        warning_counts=warning_counts(outcome.warnings),
        differences=outcome.differences,
        said=describe_difference,
        figures=list(figures(outcome)),
        prompts=shown,
        hidden=hidden,
        sources=sources(shown),
        traced=any(one.spans for prompt in shown for one in prompt.texts),
    )
