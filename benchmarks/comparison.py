"""The comparison of methods: measures it, and writes benchmarks/results/methods.json and steps.json.

    python benchmarks/comparison.py                        # measure missing tables, then write all
    python benchmarks/comparison.py --only smollm2         # measure tables whose name starts with smollm2
    python benchmarks/comparison.py --write                # write tables from earlier measurements

After measuring it names every speedup that exceeds its bound by more than its interval, and exits with 1.
``python -m tools.results`` then writes the pages. Summaries are kept in build/comparison; delete one to measure it
again. If a text differs from plain decoding's, nothing is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.results import save
from benchmarks.support.tables import ROOT, heading, row

KEPT = ROOT / "build" / "comparison"
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
PARTS = {"forward": ("verify",), "choice": ("accept",), "method": ("draft", "process"), "rollback": ("rollback",)}
"""Parts of a step, and the hooks whose time they include; the rest is the core's."""


def command(model: str, temperature: str) -> list[str]:
    """The arguments of ``spec`` that measure a table."""
    flags = [word for word in MODELS[model] if word.startswith(("-", "zoo:"))]
    methods = [word for word in MODELS[model] if word not in flags]
    asked = [part for name in methods for part in ("--method", name)]
    return ["compare", *flags, *asked, *COMMON, "--temperature", temperature]


def summary_of(name: str) -> Path:
    """The summary of a table; measured if it does not exist."""
    summary = summary_path(name)
    if not summary.exists():
        spec = [Path(sys.executable).parent / "spec", *command(*TABLES[name])]
        subprocess.run([*spec, "--out", summary.parent], check=True)
    return summary


def summary_path(name: str) -> Path:
    return KEPT / name.replace(", temperature ", "-") / "summary.json"


def whole(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Every contender on every family."""
    columns = ["family", "method", "tokens/s", "speedup (90 %)", "with prefill", "tokens per step"]
    lines = heading([*columns, "acceptance", "draft length"])
    for r in rows:
        plain = r["contender"] == "plain"
        speed = "1.00" if plain else f"{r['speedup']:.2f} ({r['low']:.2f}-{r['high']:.2f})"
        drafts = ["", ""] if plain else [f"{r['draft_acceptance']:.0%}", f"{r['mean_draft_length']:.1f}"]
        cells = [r["family"], label_of(r), f"{r['rate']:.0f}", speed, f"{r['whole']:.2f}"]
        lines.append(row([*cells, f"{r['tokens_per_step']:.2f}", *drafts]))
    return lines


def parts(measured: dict[str, Any]) -> dict[str, float]:
    """Microseconds of each part of a step after the first token. measured: a row of a summary, batch 1."""
    step = measured["tokens_per_step"] / measured["rate"] * 1e6
    split = measured["split"]
    spent = {part: step * sum(split.get(hook, 0.0) for hook in hooks) for part, hooks in PARTS.items()}
    return {"step": step, **spent, "core": step - sum(spent.values())}


def steps(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The table of a step's time, for every contender over all families."""
    lines = heading(["contender", "tokens per step", "step", *PARTS, "core", "method, of a plain forward"])
    parts_by_label = {label_of(r): (r["tokens_per_step"], parts(r)) for r in rows if r["family"] == "all"}
    forward = parts_by_label["plain"][1]["forward"]
    for name, (tau, spent) in parts_by_label.items():
        share = "" if name == "plain" else f"{spent['method'] / forward:.0%}"
        lines.append(row([name, f"{tau:.2f}", *(f"{value:.0f}" for value in spent.values()), share]))
    return lines


def label_of(row: dict[str, Any]) -> str:
    return "plain" if row["contender"] == "plain" else f"`{row['contender']}`"


def exact_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a table. Raises SystemExit if a text differs from plain decoding's."""
    rows = json.loads(summary_path(name).read_text("utf-8"))["rows"]
    if wrong := [r["contender"] for r in rows if r["identical"] != r["prompts"]]:
        raise SystemExit(f"{name}: texts of {', '.join(dict.fromkeys(wrong))} differ from plain decoding's")
    return rows


def beyond_bounds(name: str) -> list[str]:
    """Warnings of a measured table about speedups above what tokens per step or the costs of steps allow."""
    warnings = json.loads(summary_path(name).read_text("utf-8"))["warnings"]
    return [f"{name}: {warning['text']}" for warning in warnings if warning["kind"] == "bound"]


def lines(name: str, form: Callable[[list[dict[str, Any]]], list[str]]) -> list[str] | None:
    """A table of a results file; None if it was not measured."""
    return form(exact_rows(name)) if summary_path(name).exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="prefix of the tables' names")
    parser.add_argument("--write", action="store_true", help="measure nothing")
    args = parser.parse_args()
    for name in () if args.write else TABLES:
        if name.startswith(args.only):
            summary_of(name)
    save("methods", lambda name: lines(name, whole))
    save("steps", lambda name: lines(name, steps))
    if beyond := [text for name in TABLES if summary_path(name).exists() for text in beyond_bounds(name)]:
        raise SystemExit("\n".join(beyond))


if __name__ == "__main__":
    main()
