"""Kills a comparison at random moments and starts it again, until it finishes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
from spec_compare.figures.summary import COUNTED
from spec_compare.records.reading import LAPS, Comparison

ROOT = Path(__file__).parents[2]
PATIENCE = 120
"""Seconds that a process may take to reach the moment of its end."""


def killed_and_continued(
    arguments: list[str], folder: Path, kills: int, rng: random.Random, pause: float, stride: int = 4
) -> list[int]:
    """Run the comparison in ``folder``, with ``--out out``, and kill it ``kills`` times with SIGKILL.

    pause: seconds after each lap. stride: max lines between two kills. Returns the number of complete lines of the
    results after each kill.
    """
    line_counts = []
    for _ in range(kills):
        _until_killed(arguments, folder, more=rng.randint(1, stride), pause=pause, after=rng.random() * pause)
        line_counts.append(_lines(folder))
    subprocess.run(command(arguments, 0.0), cwd=folder, check=True, capture_output=True, env=environment())
    return line_counts


def _until_killed(arguments: list[str], folder: Path, more: int, pause: float, after: float) -> None:
    """Kill the process when it has written ``more`` lines, a random moment later."""
    before = _lines(folder)
    process = subprocess.Popen(
        command(arguments, pause), cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + PATIENCE
    try:
        while _lines(folder) < before + more and process.poll() is None:
            assert time.monotonic() < deadline, "the comparison does not advance"
            time.sleep(pause / 10)
        time.sleep(after)
    finally:
        process.kill()
        process.wait()


def command(arguments: list[str], pause: float) -> list[str]:
    """The comparison in a process of its own, with the toy plugins."""
    return [sys.executable, "-m", "tests.support.compared", str(pause), *arguments]


def environment() -> dict[str, str]:
    """Environment of that process, without settings of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPEC_")}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _lines(folder: Path) -> int:
    try:
        return (folder / "out" / LAPS).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def texts(comparison: Comparison) -> list[tuple[Any, ...]]:
    """Every text in the order of the comparison, with the counts of its steps; times are left out."""
    return [
        (
            lap.number,
            r.contender,
            r.prompt,
            r.turn,
            r.repeat,
            r.seed,
            r.tokens,
            r.text,
            attrs.evolve(r.steps, seconds=[]),
        )
        for lap in comparison.laps
        for r in lap.records
    ]


COUNTS = (
    "contender", "family", "prompts", "tokens", "identical", "label", "tokens_per_step", "acceptance_length",
    "acceptance_histogram", "forwards", *COUNTED,
)  # fmt: skip
"""Fields of a row that do not depend on time."""


def counts(folder: Path) -> list[dict[str, Any]]:
    """The rows of the summary without what depends on time."""
    rows = json.loads((folder / "summary.json").read_text("utf-8"))["rows"]
    return [{name: row[name] for name in COUNTS} for row in rows]
