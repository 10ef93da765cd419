"""The comparison of README.md and docs/benchmarks.md: measured, kept, and written into their marked tables.

    python benchmarks/comparison.py                        # measure what is not there yet, then write all tables
    python benchmarks/comparison.py --only smollm2         # measure tables whose name begins so
    python benchmarks/comparison.py --write                # write tables from what was measured before

A table stands between ``<!-- table: NAME -->`` and ``<!-- /table -->``; in README.md it shows speedups by family.
Summaries stay in build/comparison; delete one to measure it again. Nothing is written from texts that differ from
plain decoding's.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "comparison"
PAGES = {ROOT / "docs" / "benchmarks.md": "whole", ROOT / "README.md": "short"}
COMMON = ["-n", "128", "--limit", "10", "--repeats", "2", "--threads", "1"]
MODELS: dict[str, list[str]] = {
    "smollm2": ["-m", "zoo:smollm2", "--chat", "ngram", "suffix", "recycling"],
    "pico": [
        "-m",
        "zoo:pico",
        "ngram",
        "suffix",
        "recycling",
        "draft-model",
        "eagle3",
        "eagle3:width=2,p_min=0.1",
        "dflash",
        "ngram+draft-model",
    ],
    "pico-hybrid": ["-m", "zoo:pico-hybrid", "ngram", "suffix", "recycling", "draft-model", "mtp", "ngram+mtp"],
}
TABLES = {f"{model}, temperature {t}": (model, t) for model in MODELS for t in ("0", "0.8")}
MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- /table -->)", re.DOTALL)


def command(model: str, temperature: str) -> list[str]:
    """The arguments of ``spec`` that measure a table."""
    flags = [word for word in MODELS[model] if word.startswith(("-", "zoo:"))]
    methods = [word for word in MODELS[model] if word not in flags]
    asked = [part for name in methods for part in ("--method", name)]
    return ["compare", *flags, *asked, *COMMON, "--temperature", temperature]


def measured(name: str) -> Path:
    """The summary of a table, measured now where it is not there."""
    out = KEPT / name.replace(", temperature ", "-")
    if not (out / "summary.json").exists():
        subprocess.run([Path(sys.executable).parent / "spec", *command(*TABLES[name]), "--out", out], check=True)
    return out / "summary.json"


def whole(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Every contender on every family."""
    lines = [
        "| family | method | tokens/s | speedup (90 %) | with prefill | tokens per step | acceptance | draft length |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        plain = row["contender"] == "plain"
        speed = "1.00" if plain else f"{row['speedup']:.2f} ({row['low']:.2f}-{row['high']:.2f})"
        drafts = " |  " if plain else f"{row['draft_acceptance']:.0%} | {row['mean_draft_length']:.1f}"
        cells = [row["family"], named(row), f"{row['rate']:.0f}", speed, f"{row['whole']:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{row['tokens_per_step']:.2f}", drafts]) + " |")
    return lines


def short(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Speedup and tokens per step by method and family, plain decoding's rate below."""
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        table.setdefault(row["contender"], {})[row["family"]] = row
    families = list(table["plain"])
    lines = [f"| method | {' | '.join(families)} |", "| --- " * (1 + len(families)) + "|"]
    for contender, found in table.items():
        if contender != "plain":
            cells = [f"{r['speedup']:.2f}× ({r['tokens_per_step']:.1f})" for r in found.values()]
            lines.append("| " + " | ".join([named({"contender": contender}), *cells]) + " |")
    rates = [f"{row['rate']:.0f}/s" for row in table["plain"].values()]
    return [*lines, "| " + " | ".join(["plain decoding, tokens", *rates]) + " |"]


def named(row: dict[str, Any]) -> str:
    return "plain" if row["contender"] == "plain" else f"`{row['contender']}`"


def checked(name: str) -> list[dict[str, Any]]:
    """The rows of a table. Raises SystemExit where a text differed: then no speed means anything."""
    rows = json.loads((KEPT / name.replace(", temperature ", "-") / "summary.json").read_text("utf-8"))["rows"]
    if wrong := [row["contender"] for row in rows if row["identical"] != row["prompts"]]:
        raise SystemExit(f"{name}: texts of {', '.join(dict.fromkeys(wrong))} differ from plain decoding's")
    return rows


def write(page: Path, form: str) -> None:
    """Tables of a page, from what was measured; a table that was not stays as it is."""

    def table(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        if not (KEPT / name.replace(", temperature ", "-") / "summary.json").exists():
            return found[0]
        return begin + "\n".join(FORMS[form](checked(name))) + "\n" + end

    page.write_text(MARKED.sub(table, page.read_text("utf-8")), "utf-8")


FORMS = {"whole": whole, "short": short}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="tables whose name begins so")
    parser.add_argument("--write", action="store_true", help="measure nothing")
    args = parser.parse_args()
    for name in () if args.write else TABLES:
        if name.startswith(args.only):
            measured(name)
    for page, form in PAGES.items():
        write(page, form)


if __name__ == "__main__":
    main()
