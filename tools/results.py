"""Generates the tables and figures of measured results: ``python -m tools.results``.

Reads ``benchmarks/results``; writes marked tables of docs/benchmarks.md, docs/pictures.md,
docs/audit.md, docs/structured-output.md, docs/methods/gdn-rollback.md and README.md, and docs/figures/*.svg.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from benchmarks.support.results import ROOT, read, read_table
from benchmarks.support.tables import heading, row, with_tables
from tools import audits, block_trees, charts, figures, folders, machine_gain
from tools.charts import LABELS, WIDTH, Dot, Scale

PICTURES = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "benchmarks.md"
ROLLBACK = ROOT / "docs" / "methods" / "gdn-rollback.md"
EYES = ROOT / "docs" / "pictures.md"
AUDIT = ROOT / "docs" / "audit.md"
STRUCTURED = ROOT / "docs" / "structured-output.md"
README = ROOT / "README.md"
TEMPERATURES = ("0", "0.8")
MODELS = ("smollm2", "pico", "pico-hybrid")
RUNS = tuple(f"{model}, temperature {t}" for model in MODELS for t in TEMPERATURES)
SHORT_RUNS = [f"`{model}`, {t}" for model in MODELS for t in TEMPERATURES]
PARTS = ("forward", "choice", "method", "rollback", "core")
STRATEGIES = ("snapshot", "replay", "checkpoint", "separate forward")
ALL = "all"


def records(file: str, name: str) -> list[dict[str, str]]:
    """Rows of a table as {column: cell}."""
    table = read_table(file, name)
    return [dict(zip(table["columns"], cells, strict=True)) for cells in table["rows"]]


def source(file: str, *names: str) -> list[str]:
    """Lines below a table: machine, date and commit of the tables of a file, all or those with these names."""
    tables = [table for table in read(file)["tables"] if not names or table["name"] in names]
    machines = dict.fromkeys(_circumstances(table) for table in tables)
    return ["", f"From `benchmarks/results/{file}.json`: {'; '.join(machines)}."]


def _circumstances(table: dict[str, Any]) -> str:
    machine = table["machine"]
    if machine is None and table["date"] is None:
        return "machine, date and commit not stated"
    when = f"{table['date'] or 'date not stated'}, commit {table['commit'] or 'not stated'}"
    if machine is None:
        return f"machine not stated, {when}"
    name = "" if machine["name"] == machine["processor"] else f" ({machine['name']})"
    return f"{machine['cores']} cores of {machine['processor']}{name}, {machine['instruction_set']}, {when}"


# tables


def methods() -> list[str]:
    """Speedup and tokens per step over all families, by model and temperature."""
    cells: dict[str, dict[str, str]] = {}
    for run in RUNS:
        for r in records("methods", run):
            if r["family"] == ALL:
                rate = r["method"] == "plain"
                cell = f"{r['tokens/s']}/s" if rate else f"{_value(r['speedup (90 %)']):.2f} ({r['tokens per step']})"
                cells.setdefault(r["method"], {})[run] = cell
    plain = cells.pop("plain")
    names = sorted(cells, key=lambda name: "+" in name)
    rows = [row([name, *(cells[name].get(run, "") for run in RUNS)]) for name in names]
    last = row(["plain, tokens", *plain.values()])
    return [*heading(["method", *SHORT_RUNS]), *rows, last, *source("methods")]


def gemma3() -> list[str]:
    """Speedups of Gemma 3 270M by family, with the notes of their measurement."""
    body = read("gemma3")
    (table,) = body["tables"]
    notes = ["", *body["notes"]]
    return [*heading(table["columns"]), *map(row, table["rows"]), *source("gemma3"), *notes]


def end_to_end() -> list[str]:
    """Ratios to llama.cpp's rate over all families, by model and temperature."""
    cells: dict[str, dict[str, str]] = {}
    for run in RUNS:
        for r in records("end-to-end", f"end to end, {run}"):
            if r["family"] == ALL:
                ratio = f"{_value(r[LLAMACPP]):.2f}"
                cells.setdefault(r["side"], {})[run] = f"{r['tokens/s']}/s" if r["side"] == "llama.cpp" else ratio
    peer = cells.pop("llama.cpp")
    rows = [row([name, *(runs.get(run, "") for run in RUNS)]) for name, runs in cells.items()]
    last = row(["llama.cpp, tokens", *peer.values()])
    return [*heading(["here", *SHORT_RUNS]), *rows, last, *source("end-to-end")]


LLAMACPP = "of llama.cpp's (90 %)"
"""Column of ratios in the results of ``benchmarks/end_to_end.py``."""


def whole(file: str, name: str) -> list[str]:
    """A table as it was measured."""
    table = read_table(file, name)
    return [*heading(table["columns"]), *map(row, table["rows"]), *source(file, name)]


def verify() -> list[str]:
    """Steps that verify eight rows and take four back: speed over plain decoding by kind of layer and strategy."""
    rates: dict[str, list[str]] = {}
    for r in records("rollback-kda", "verify and rollback"):
        rates.setdefault(r["layers"], []).append(r["tokens per second of plain"])
    strategies = dict.fromkeys(r["strategy"] for r in records("rollback-kda", "verify and rollback"))
    rows = [row([layers, *values]) for layers, values in rates.items()]
    return [*heading(["layers", *strategies]), *rows, *source("rollback-kda")]


def draft_models() -> list[str]:
    """Acceptance of draft models with and without the picture of a prompt."""
    table = read_table("pictures", "draft models")
    return [*heading(table["columns"]), *map(row, table["rows"]), "", *table["notes"], *source("pictures")]


def readme() -> list[str]:
    """Speedups of SmolLM2's methods by family."""
    by_family = _by_family("smollm2, temperature 0")
    names = [name for name in by_family[ALL] if name != "plain"]
    lines = [
        row(
            [
                name,
                *(
                    f"{_value(r[name]['speedup (90 %)']):.2f}× ({r[name]['tokens per step']})"
                    for r in by_family.values()
                ),
            ]
        )
        for name in names
    ]
    rates = row(["plain decoding, tokens", *(f"{r['plain']['tokens/s']}/s" for r in by_family.values())])
    return [*heading(["method", *by_family]), *lines, rates]


def _by_family(run: str) -> dict[str, dict[str, dict[str, str]]]:
    """{family: {method: its row}}."""
    families: dict[str, dict[str, dict[str, str]]] = {}
    for r in records("methods", run):
        families.setdefault(r["family"], {})[r["method"]] = r
    return families


def _value(cell: str) -> float:
    """The first number of a cell such as ``1.94 (1.70-2.23)``."""
    return float(cell.split()[0])


def _dot(series: int, cell: str) -> Dot:
    """A value with its interval from such a cell."""
    value, low, high = map(float, re.findall(r"[\d.]+", cell))
    return Dot(series, value, low, high)


# figures


def methods_figure() -> str:
    """Speedups on SmolLM2 by family."""
    scale, parts, y = Scale(0.9, 2.4, LABELS, WIDTH - 20), [], 54.0
    names = ["`ngram`", "`suffix`", "`recycling`"]
    parts += charts.legend(24, [name.strip("`") for name in names])
    for t in TEMPERATURES:
        rows = [
            (family, [_dot(i, r[name]["speedup (90 %)"]) for i, name in enumerate(names)])
            for family, r in _by_family(f"smollm2, temperature {t}").items()
        ]
        panel, y = charts.dots(y, f"SmolLM2, temperature {t}", rows, scale, (1, 1.2, 1.4, 1.6, 1.8, 2, 2.2), base=1)
        parts += panel
    about = "Speedups of ngram, suffix and recycling with 90 % intervals by family; the strong line is plain decoding."
    return charts.picture("Speedup over plain decoding by family", about, parts, y - 8)


def steps_figure() -> str:
    """Parts of a step, a panel a model."""
    parts, y = charts.legend(24, PARTS), 54.0
    for model, high, distance in (("smollm2", 7000, 1000), ("pico", 1200, 200), ("pico-hybrid", 1200, 200)):
        results = records("steps", f"{model}, temperature 0")
        rows = [
            (r["contender"].strip("`").replace(":width=2,p_min=0.1", ", trees"), [float(r[part]) for part in PARTS])
            for r in results
        ]
        ticks = range(0, high + 1, distance)
        title = f"zoo:{model}, temperature 0: µs of a step"
        panel, y = charts.bars(y, title, rows, Scale(0, high, LABELS, WIDTH - 30), ticks)
        parts += panel
    about = "Stacked bars: forward, choice, method, rollback and core time of a step, for each method and model."
    return charts.picture("Where a step's time goes", about, parts, y - 8)


def end_to_end_figure() -> str:
    """Ratios to llama.cpp, a panel a model."""
    scale, parts, y = Scale(0.9, 3.8, LABELS, WIDTH - 20), charts.legend(24, ["temperature 0", "temperature 0.8"]), 54.0
    for model in MODELS:
        by_side: dict[str, list[Dot]] = {}
        for i, t in enumerate(TEMPERATURES):
            for r in records("end-to-end", f"end to end, {model}, temperature {t}"):
                if r["family"] == ALL and r["side"] != "llama.cpp":
                    by_side.setdefault(r["side"].replace("`", ""), []).append(_dot(i, r[LLAMACPP]))
        rows = [*by_side.items()]
        panel, y = charts.dots(y, f"zoo:{model}", rows, scale, (1, 1.5, 2, 2.5, 3, 3.5), base=1)
        parts += panel
    about = "Tokens per second over llama.cpp's plain decoding, with 90 % intervals; the strong line is llama.cpp."
    return charts.picture("Tokens per second over llama.cpp's", about, parts, y - 8)


def rollback_figure() -> str:
    """Tokens per second over the length of a draft, a panel a rate of acceptance."""
    parts, results = charts.legend(24, STRATEGIES), records("rollback", "tokens per second")
    lengths = list(dict.fromkeys(r["n"] for r in results))
    for i, rate in enumerate(("0.3", "0.6", "0.9")):
        rows = [r for r in results if r["accepted"] == rate]
        x, y = Scale(0, len(lengths) - 1, 66 + i * 232, 214 + i * 232), Scale(0, 28, 290, 76)
        values = [[float(r[name]) for r in rows] for name in STRATEGIES]
        parts += charts.curves(x, y, f"acceptance {rate}", values, lengths, (0, 5, 10, 15, 20, 25))
    parts.append(charts.text(WIDTH / 2, 334, "n, tokens of a draft; the axis is tokens per second", "middle", "dim"))
    about = "Three panels by acceptance: replay and snapshot are close; a separate forward is the slowest."
    return charts.picture("Tokens per second by strategy of rollback", about, parts, 350)


def precision_figure() -> str:
    """Divergence by rounded activations, and by the rounding of the weights."""
    scale = Scale(1e-4, 0.3, LABELS, WIDTH - 30, logarithmic=True)
    rows = []
    for r in records("activations", "divergence"):
        weights = r["weights"].replace(", the file", "").replace(", output Q8_0", "")
        label = f"{r['model'].replace('`', '').removeprefix('zoo:')}, {weights}"
        rows.append((label, [Dot(0, float(r["KL int8"])), Dot(1, float(r["weight noise"]))]))
    parts = charts.legend(24, ["int8 activations", "noise of the weights"])
    ticks = (1e-4, 1e-3, 1e-2, 1e-1)
    panel, y = charts.dots(54, "KL divergence per token", rows, scale, ticks)
    about = (
        "For every type of weights the divergence that 8-bit activations add is below that of the weights' rounding."
    )
    return charts.picture("KL divergence by 8-bit activations and by weights", about, [*parts, *panel], y - 8)


def account_figure() -> str:
    """The balance of the controller's account, and the length of drafts, over the steps of a run."""
    results, x, parts = records("control", "account"), (66.0, WIDTH - 30.0), list[str]()
    ticks = {"balance": (0, 5, 10, 15, 20), "draft": (0, 4, 8)}
    titles = {"balance": "balance of the account, in plain steps", "draft": "tokens of a draft"}
    for top, name in zip((40, 250), ticks, strict=True):
        y = Scale(0, ticks[name][-1] * 1.1, top + 160, top)
        values = [float(r[name]) for r in results]
        steps = [r["step"] if int(r["step"]) % 200 == 0 else "" for r in results]
        parts += charts.curves(Scale(0, len(values) - 1, *x), y, titles[name], [values], steps, ticks[name])
    parts.append(charts.text(WIDTH / 2, 448, "steps; drafts are always wrong from 400 to 800", "middle", "dim"))
    about = "The balance falls from 20 to 4 when drafts turn wrong; then none is drafted until a trial is accepted."
    return charts.picture("The account of the controller auto", about, parts, 462)


TABLES: dict[str, Callable[[], list[str]]] = {
    "methods": methods,
    "gemma3": gemma3,
    "end to end": end_to_end,
}
"""Marked tables of docs/benchmarks.md."""
ROLLBACK_TABLES: dict[str, Callable[[], list[str]]] = {"verify": verify}
"""Marked tables of docs/methods/gdn-rollback.md."""
EYES_TABLES: dict[str, Callable[[], list[str]]] = {"pictures": draft_models}
"""Marked tables of docs/pictures.md."""
AUDIT_TABLES: dict[str, Callable[[], list[str]]] = {"audits": audits.audits}
"""Marked tables of docs/audit.md."""
README_TABLES: dict[str, Callable[[], list[str]]] = {"speedups": readme}
CHARTS: dict[str, Callable[[], str]] = {
    "methods.svg": methods_figure,
    "steps.svg": steps_figure,
    "end-to-end.svg": end_to_end_figure,
    "rollback.svg": rollback_figure,
    "precision.svg": precision_figure,
    "account.svg": account_figure,
    "block-trees.svg": block_trees.figure,
    "folders.svg": folders.figure,
    "servers.svg": figures.servers_figure,
    "extensions.svg": figures.extensions_figure,
    "acceptance.svg": figures.acceptance_figure,
    "short-runs.svg": figures.short_runs_figure,
    "machine-gain.svg": machine_gain.figure,
}
"""Files of docs/figures."""


def pages() -> dict[str, str]:
    """The text of every generated file, by its path from the root; pages with their tables replaced."""
    texts = {f"docs/figures/{name}": draw() for name, draw in CHARTS.items()}
    for page, tables in (
        (PAGE, TABLES),
        (ROLLBACK, ROLLBACK_TABLES),
        (EYES, EYES_TABLES),
        (AUDIT, AUDIT_TABLES),
        (STRUCTURED, {"schemas": lambda: whole("structured-output", "methods")}),
        (README, README_TABLES),
    ):
        lines = {name: make() for name, make in tables.items()}
        texts[page.relative_to(ROOT).as_posix()] = with_tables(page.read_text("utf-8"), lines.get)
    return texts


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for path, text in pages().items():
        (ROOT / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
