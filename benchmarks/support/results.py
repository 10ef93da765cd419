"""Results of measurements: files in ``benchmarks/results``, from which the tables and figures of pages are made.

A file has a title, notes, and tables. A table has a name, the machine (processor, cores, instruction set, memory),
date and commit of its measurement, columns, and rows of cells as they are printed; None is what was not recorded.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
CELLS = re.compile(r"(?<!\\)\|")
INSTRUCTION_SETS = {"avx512_vnni": "AVX-512 with VNNI", "avx512f": "AVX-512", "avx2": "AVX2"}
"""Flags of /proc/cpuinfo, best first."""


def read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def read_table(file: str, name: str) -> dict[str, Any]:
    """One table of a file, by name."""
    return next(table for table in read(file)["tables"] if table["name"] == name)


def save(file: str, lines: Callable[[str], list[str] | None]) -> None:
    """Replace tables of a file. lines: the Markdown lines of a table by name, with notes after it; None keeps it."""
    body = read(file)
    for table in body["tables"]:
        fresh = lines(table["name"])
        if fresh is not None:
            table.update(from_markdown(fresh), machine=this_machine(), date=str(date.today()), commit=_commit())
    (RESULTS / f"{file}.json").write_text(dump(body), "utf-8")


def from_markdown(lines: list[str]) -> dict[str, Any]:
    """Columns, rows and notes of a Markdown table."""
    rows = [[cell.strip() for cell in CELLS.split(line)[1:-1]] for line in lines if line.startswith("|")]
    notes = [line for line in lines if line and not line.startswith("|")]
    return {"columns": rows[0], "rows": rows[2:], "notes": notes}


def dump(body: dict[str, Any]) -> str:
    """JSON with one field of a table a line, and one row a line."""
    notes = ",\n".join(f"  {_json(note)}" for note in body["notes"])
    tables = ",\n".join(f"  {{\n{_table(table)}\n  }}" for table in body["tables"])
    return f'{{\n "title": {_json(body["title"])},\n "notes": [\n{notes}\n ],\n "tables": [\n{tables}\n ]\n}}\n'


def _table(table: dict[str, Any]) -> str:
    rows = ",\n".join(f"    {_json(row)}" for row in table["rows"])
    fields = [f"   {_json(name)}: {_json(value)}" for name, value in table.items() if name != "rows"]
    return ",\n".join([*fields, f'   "rows": [\n{rows}\n   ]'])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def this_machine() -> dict[str, str | None]:
    """The processor as /proc/cpuinfo and ``platform`` name it."""
    file = Path("/proc/cpuinfo")
    text = file.read_text("utf-8") if file.exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"flags\s*: (.*)", text)
    names = [name for flag, name in INSTRUCTION_SETS.items() if flags and flag in flags[1].split()]
    processor = model[1] if model else platform.processor() or platform.machine()
    cores = str(text.count("processor\t:")) if text else None
    return {"name": processor, "processor": processor, "cores": cores, "instruction_set": (names or [None])[0]}


def _commit() -> str | None:
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return run.stdout.strip() or None
