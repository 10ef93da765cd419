"""The table of audits of real servers, from ``benchmarks/results/audit``."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.support.results import ROOT

FOLDER = ROOT / "benchmarks" / "results" / "audit"
TITLES = ("server", "model", "drafts", "budget", "hold", "fail", "skipped", "accepted draft tokens")


def audits() -> list[str]:
    """A row per audit, then what failed."""
    runs = [json.loads(file.read_text("utf-8")) for file in sorted(FOLDER.glob("*.json"))]
    lines = [f"| {' | '.join(TITLES)} |", f"|{' --- |' * len(TITLES)}"]
    return lines + [_row(run) for run in runs] + [line for run in runs for line in _faults(run)]


def _verdicts(run: dict[str, Any], status: str) -> list[dict[str, Any]]:
    return [v for section in run["result"]["sections"] for v in section["verdicts"] if v["status"] == status]


def _row(run: dict[str, Any]) -> str:
    counts = [str(len(_verdicts(run, status))) for status in ("holds", "fails", "skipped")]
    accepted = run["result"]["facts"]["accepted"].removesuffix(" draft tokens").removesuffix(" in the answers")
    cells = [run["server"], f"`{run['model']}`", run["drafts"], run["budget"], *counts, accepted]
    return f"| {' | '.join(cells)} |"


def _faults(run: dict[str, Any]) -> list[str]:
    failing = [verdict["promise"] for verdict in _verdicts(run, "fails")]
    return [f"\n{run['server']}, {run['drafts']}, fails: {'; '.join(failing)}."] if failing else []
