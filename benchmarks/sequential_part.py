"""A DFlash head with and without the sequential part of a DSpark head: writes benchmarks/results/dspark.json.

    python benchmarks/sequential_part.py --head pico-dspark.gguf             # measure missing tables, then write all
    python benchmarks/sequential_part.py --head pico-dspark.gguf --write     # write tables from earlier measurements

Results are kept in build/sequential-part; delete them to measure again. If a text differs from plain decoding's,
nothing is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from spec_compare.records.reading import read
from spec_compare.report.reliability import count

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.results import save
from benchmarks.support.tables import ROOT, heading, row

KEPT = ROOT / "build" / "sequential-part"
COMMON = ["-m", "zoo:pico", "-n", "128", "--limit", "10", "--repeats", "2", "--threads", "1", "--trace"]
SETTINGS = {
    "whole drafts": "p_min=0",
    "defaults": "draft_max=15",
    "tree of 8": "width=4,nodes_max=8,p_min=0",
    "tree of 16": "width=4,nodes_max=16,p_min=0",
    "tree of 32": "width=4,nodes_max=32,p_min=0",
}
TEMPERATURES = ("0", "0.8")
TABLES = {f"temperature {t}": t for t in TEMPERATURES}
BINS = ("0 to 0.2", "0.2 to 0.4", "0.4 to 0.6", "0.6 to 0.8", "0.8 to 1")
LAST = 4
"""The position from which on all share the lines of a reliability table."""


def contender(kind: str, settings: str, head: str) -> str:
    return f"{kind}:{settings}" + (f",file={head}" if kind == "dspark" else "")


def measure(temperature: str, head: str) -> None:
    """Measure a table, unless that was done."""
    folder = KEPT / temperature
    if not (folder / "summary.json").exists():
        named = [contender(kind, settings, head) for settings in SETTINGS.values() for kind in ("dflash", "dspark")]
        methods = [part for name in named for part in ("--method", name)]
        spec = [Path(sys.executable).parent / "spec", "compare", *COMMON, *methods]
        subprocess.run([*spec, "--temperature", temperature, "--out", folder], check=True)


def speeds(temperature: str) -> list[str]:
    """Every contender over all families, and the share of accepted tokens by position."""
    rows = json.loads((KEPT / temperature / "summary.json").read_text("utf-8"))["rows"]
    rows = [r for r in rows if r["family"] == "all"]
    if wrong := [r["contender"] for r in rows if r["identical"] != r["prompts"]]:
        raise SystemExit(f"texts of {', '.join(wrong)} differ from plain decoding's")
    plain, *drafting = rows
    columns = [
        "drafts",
        "method",
        "tokens per step",
        "accepted by position",
        "tokens/s",
        "speedup (90 %)",
        "by CPU time",
    ]
    lines = [*heading(columns), row(["none", "plain", "1.00", "", f"{plain['rate']:.0f}", "1.00", "1.00"])]
    names = [(drafts, kind) for drafts in SETTINGS for kind in ("dflash", "dspark")]
    for (drafts, kind), r in zip(names, drafting, strict=True):
        lines.append(row([drafts, f"`{kind}`", f"{r['tokens_per_step']:.2f}", *figures(r)]))
    return lines


def figures(r: dict[str, Any]) -> list[str]:
    """Acceptance and speeds of a contender."""
    accepted = " ".join(f"{share:.0%}" for share in r["conditional"])
    speed = f"{r['speedup']:.2f} ({r['low']:.2f}-{r['high']:.2f})"
    return [accepted, f"{r['rate']:.0f}", speed, f"{r['cpu_speedup']:.2f}"]


def reliability(temperature: str) -> list[str]:
    """The chances that both methods gave the tokens of whole drafts, and the share accepted, by position."""
    comparison = read(KEPT / temperature)
    contenders = [c.name for c in comparison.header.contenders if c.name != "plain"][:2]
    lines = heading(["method", "chance", *(f"position {i}{' and later' * (i == LAST)}" for i in range(1, LAST + 1))])
    for name, kind in zip(contenders, ("dflash", "dspark"), strict=True):
        records = [record for lap in comparison.laps for record in lap.records if record.contender == name]
        bins = count(records)
        for index, title in enumerate(BINS):
            cells = []
            for position in range(1, LAST + 1):
                results = [b for (p, i), b in bins.items() if min(p, LAST) == position and i // 2 == index]
                tests, accepted = sum(b.tests for b in results), sum(b.accepted for b in results)
                expected = sum(b.expected for b in results)
                cells.append(f"{expected / tests:.2f}: {accepted / tests:.2f} of {tests}" if tests else "")
            lines.append(row([f"`{kind}`", title, *cells]))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", required=True, help="a DSpark head that extends zoo:pico-dflash")
    parser.add_argument("--write", action="store_true", help="measure nothing")
    args = parser.parse_args()
    for temperature in () if args.write else TEMPERATURES:
        measure(temperature, args.head)
    tables = {name: speeds(t) for name, t in TABLES.items()}
    tables |= {f"reliability, {name}": reliability(t) for name, t in TABLES.items()}
    save("dspark", tables.get)


if __name__ == "__main__":
    main()
