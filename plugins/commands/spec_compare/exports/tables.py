"""Rows of a comparison as CSV or Parquet: one per contender and family, or one per text."""

from __future__ import annotations

import csv as csv_module
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
from spec_commands import common
from spec_commands.common import as_json

from spec_compare.figures.outcome import Outcome
from spec_compare.records.header import ContenderFacts, Header
from spec_compare.records.record import PLAIN, Record
from spec_core.commands import name_of
from spec_core.errors import UsageError

EMPTY = "an empty list"
"""The kind of a list that fits a column of any lists."""
FORMULAS = frozenset("=+-@＝＋－＠|%\t\r\n\0")
"""First characters of a formula; of tabs and ends of lines a spreadsheet may begin a cell."""
SPACES = " \u00a0\u3000\ufeff"
EXTRA = "pip install 'spec-core[parquet]'"


def csv(outcome: Outcome, path: Path) -> list[Path]:
    """A line per contender and family, with the names of ``summary.json``; lists and objects as JSON."""
    return [write_file(path, _csv([_flat(row) for row in rows(outcome)]))]


def texts(outcome: Outcome, path: Path) -> list[Path]:
    """A line per text: counts and times, without its tokens and steps."""
    return [write_file(path, _csv(text_rows(outcome)))]


def text_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """A row per text, with the settings of a sweep."""
    names, facts = varying_settings(outcome.header), {c.name: c for c in outcome.header.contenders}
    return [_text(r) | swept_of(facts[r.contender], names) for lap in outcome.laps for r in lap.records]


def parquet(outcome: Outcome, path: Path) -> list[Path]:
    """A row per contender and family; lists stay lists. Raises UsageError if pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet as files
    except ImportError as error:
        raise UsageError("--parquet needs pyarrow, which is not installed", hint=EXTRA) from error
    sink, lines = io.BytesIO(), one_kind_each([_with_json_objects(row) for row in rows(outcome)])
    try:
        files.write_table(pyarrow.Table.from_pylist(lines), sink)
    except (pyarrow.ArrowException, OverflowError) as error:  # a column of Parquet has one type
        raise UsageError(f"{path}: the rows do not fit Parquet: {error}", hint="write them with --csv") from error
    return [write_file(path, sink.getvalue())]


def rows(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """The rows, with what distinguishes this machine and this model."""
    header = outcome.header
    for row in outcome.rows:
        facts = next(c for c in header.contenders if c.name == row.contender)
        target = header.targets[facts.target]
        where = {"model": target.model, "dtype": target.dtype, "device": target.device, "host": header.host}
        own = swept_of(facts, varying_settings(header))
        methods = "+".join(map(name_of, facts.methods)) or PLAIN
        yield {
            **attrs.asdict(row),
            "baseline": facts.baseline,
            **where,
            "batch": header.batch,
            "methods": methods,
            "times_unreliable": bool(outcome.warnings),
            **own,
        }


def swept_of(facts: ContenderFacts, names: Iterable[str]) -> dict[str, Any]:
    """The values of these settings; None for one that a contender does not have."""
    return {name: facts.settings[name].value if name in facts.settings else None for name in names}


def varying_settings(header: Header) -> list[str]:
    """Settings that have several values among the contenders, by a sweep."""
    values: dict[str, set[str]] = {}
    for facts in header.contenders:
        for name, setting in facts.settings.items():
            values.setdefault(name, set()).add(as_json(setting.value))
    return sorted(name for name, texts in values.items() if len(texts) > 1 and name != "methods")


def _text(record: Record) -> dict[str, Any]:
    left_out = ("tokens", "steps", "draft_statistics", "pieces", "trace", "prompt_steps", "served")
    own = attrs.asdict(record, recurse=False, filter=lambda field, _: field.name not in left_out)
    counts = {name: getattr(record.draft_statistics, name) for name in ("drafted", "accepted", "emitted")}
    return {**own, "new_tokens": record.token_count, "step_count": record.draft_statistics.steps, **counts}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {name: as_json(value) if isinstance(value, list | dict) else value for name, value in row.items()}


def _with_json_objects(row: dict[str, Any]) -> dict[str, Any]:
    """Objects as JSON: their names differ from row to row."""
    return {name: as_json(value) if isinstance(value, dict) else value for name, value in row.items()}


def one_kind_each(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Columns with values of several kinds, such as a setting that is a text or a number, as JSON."""
    kinds: dict[str, set[str]] = {}
    for line in lines:
        for name, value in line.items():
            kinds.setdefault(name, set()).add(kind_of(value))
    mixed = {name for name, names_of_kinds in kinds.items() if len(names_of_kinds - {"null", EMPTY}) > 1}
    return [{name: as_json(value) if name in mixed else value for name, value in line.items()} for line in lines]


def kind_of(value: Any) -> str:
    """The kind of a column that holds the value; whole numbers fit one of numbers."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "bool"
    if isinstance(value, list):
        return "list of " + " and ".join(sorted(set(map(kind_of, value)))) if value else EMPTY
    return "number" if isinstance(value, int | float) else "text"


def _csv(lines: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv_module.DictWriter(out, list(dict.fromkeys(name for line in lines for name in line)))
    writer.writerow({name: plain_cell(name) for name in writer.fieldnames})
    writer.writerows({name: plain_cell(value) for name, value in line.items()} for line in lines)
    return out.getvalue().encode()


def plain_cell(value: Any) -> Any:
    """The value of a cell. Before a text that a spreadsheet would run as a formula there is an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.lstrip(SPACES)[:1] in FORMULAS else value


def write_file(path: Path, data: bytes) -> Path:
    """The path, after writing. Raises UsageError."""
    try:
        common.write_file(path, data)
    except OSError as error:
        raise common.write_error(path, error) from error
    return path
