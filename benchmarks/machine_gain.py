"""What the machine does to a method's gain: writes benchmarks/results/machine-gain.json.

    python benchmarks/machine_gain.py            # measure, and write
    python benchmarks/machine_gain.py --write    # write again from the summary in build/machine_gain

Two tables follow from accepted lengths that others published, and from the costs of steps of two machines: of this
CPU, measured here on zoo:smollm2, and of a GPU, whose figures were given. One is measured: six categories of prompts
in Spec-Bench's form on zoo:smollm2, with the methods that need no head.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.results import RESULTS, ROOT, dump, from_markdown, this_machine
from benchmarks.support.tables import heading, row

KEPT = ROOT / "build" / "machine_gain"
PROMPTS = Path(__file__).parent / "prompts" / "six-categories.jsonl"
MODEL = "zoo:smollm2"
METHODS = ("ngram", "suffix", "recycling")
ROWS = (1, 2, 4, 8, 16, 32, 64)
GIVEN = {1: 4350, 8: 4374, 16: 4422, 32: 4764, 64: 5201}
"""Microseconds of a step by rows on an H200: Qwen3-8B in bfloat16, context 512, by a prototype; not measured here."""
PUBLISHED = (
    ("PLD", 11, 1.74, 1.55),
    ("EAGLE", 26, 3.57, 2.16),
    ("EAGLE-2", 60, 4.36, 2.25),
)
"""Method, rows of a step, tokens of a step, and the speedup that was measured on an RTX 3090: the leaderboard of
Spec-Bench, Vicuna-7B, greedy, float16; rows are those of its scripts (10 candidates, 25 nodes, 60 tokens, and the last
token where it is not among them)."""
SOURCE = "https://github.com/hemingkx/Spec-Bench, Leaderboard.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="measure nothing")
    if not parser.parse_args().write:
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir(parents=True)
        (KEPT / "costs.json").write_text(json.dumps(measured_costs()), "utf-8")
        compare()
    costs = json.loads((KEPT / "costs.json").read_text("utf-8"))
    rows = json.loads((KEPT / "comparison" / "summary.json").read_text("utf-8"))["rows"]
    (RESULTS / "machine-gain.json").write_text(dump(body({int(n): s for n, s in costs.items()}, rows)), "utf-8")


# measuring


def measured_costs() -> dict[int, float]:
    """Seconds of the fastest of several forwards of n rows after 448 cached rows."""
    command = ["bench", "step", "-m", MODEL, "--threads", "1", "--rows", ",".join(map(str, ROWS)), "--depth", "448"]
    body = json.loads(spec([*command, "--json"]))
    return {step["rows"]: step["forward"] for step in body["steps"]}


def compare() -> None:
    """Measure the methods on all prompts."""
    asked = [word for name in METHODS for word in ("--method", name)]
    common = ["--chat", "--prompts", str(PROMPTS), "-n", "96", "--repeats", "2", "--threads", "1"]
    spec(["compare", "-m", MODEL, *asked, *common, "--out", str(KEPT / "comparison")])


def spec(words: Sequence[str]) -> str:
    """The output of ``spec``."""
    return subprocess.run(
        [sys.executable, "-m", "spec_cli.main", *words], check=True, text=True, stdout=subprocess.PIPE
    ).stdout


# gains


def cost(points: dict[int, float]) -> Callable[[int], float]:
    """The cost of n rows, linear between measured ones."""

    def at(n: int) -> float:
        known = sorted(points.items())
        (a, low), (b, high) = next(
            (pair for pair in pairwise(known) if pair[0][0] <= n <= pair[1][0]), (known[-2], known[-1])
        )
        return low + (high - low) * (n - a) / (b - a)

    return at


def gain(tokens: float, rows: int, step: Callable[[int], float]) -> float:
    """The speedup of steps of ``rows`` rows that give ``tokens`` tokens, without the time of the drafter."""
    return tokens * step(1) / step(rows)


# the file


def body(costs: dict[int, float], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The results. Raises SystemExit if a text differs from plain decoding's."""
    if wrong := {r["contender"] for r in rows if r["identical"] != r["prompts"]}:
        raise SystemExit(f"texts of {', '.join(sorted(wrong))} differ from plain decoding's")
    machine, today = this_machine(), str(date.today())
    tables = [
        ("cost of a step", cost_lines(costs), machine),
        ("gains from published accepted lengths", gain_lines(costs), machine),
        ("six categories", category_lines(rows), machine),
    ]
    return {
        "title": "What the machine does to a method's gain",
        "notes": [
            f"Accepted lengths and the speedups on an RTX 3090: {SOURCE} (Vicuna-7B, greedy, float16).",
            "A gain is the accepted length times T(1) / T(rows): the time of the drafter is left out, so that it is an "
            "upper bound.",
            "H200: figures as given by a measurement of Qwen3-8B in bfloat16 with 512 rows in the cache, by a "
            "prototype of the GPU executor; they were not measured here.",
            "CPU: SmolLM2 (135M, Q4_1) with 448 rows in the cache, one thread on a loaded machine.",
        ],
        "tables": [
            {"name": name, "machine": place, "date": today, "commit": None, **from_markdown(lines)}
            for name, lines, place in tables
        ],
    }


def cost_lines(costs: dict[int, float]) -> list[str]:
    """T(n) / T(1) of both machines."""
    here, there = cost(costs), cost({n: float(us) for n, us in GIVEN.items()})
    return [
        *heading(["machine", *(f"T({n}) / T(1)" for n in ROWS), "T(1), ms"]),
        row(["this CPU", *(f"{here(n) / here(1):.2f}" for n in ROWS), f"{1e3 * here(1):.2f}"]),
        row(["H200, given", *(f"{there(n) / there(1):.2f}" for n in ROWS), f"{there(1) / 1e3:.2f}"]),
    ]


def gain_lines(costs: dict[int, float]) -> list[str]:
    """Gains of published methods by the costs of both machines."""
    here, there = cost(costs), cost({n: float(us) for n, us in GIVEN.items()})
    columns = ["method", "rows of a step", "accepted length", "H200, given", "this CPU", "RTX 3090, published"]
    rows = [
        row(
            [
                name,
                str(n),
                f"{tokens:.2f}",
                f"{gain(tokens, n, there):.2f}",
                f"{gain(tokens, n, here):.2f}",
                f"{old:.2f}",
            ]
        )
        for name, n, tokens, old in PUBLISHED
    ]
    return [*heading(columns), *rows]


def category_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Speedups and tokens per step by category."""
    columns = ["category", "method", "speedup (90 %)", "tokens per step", "acceptance"]
    lines = heading(columns)
    for r in rows:
        if r["contender"] != "plain":
            speed = f"{r['speedup']:.2f} ({r['low']:.2f}-{r['high']:.2f})"
            lines.append(
                row(
                    [
                        r["family"],
                        f"`{r['contender']}`",
                        speed,
                        f"{r['tokens_per_step']:.2f}",
                        f"{r['draft_acceptance']:.0%}",
                    ]
                )
            )
    return lines


if __name__ == "__main__":
    main()
