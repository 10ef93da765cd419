"""Tables for papers: methods by models and temperatures, as LaTeX with booktabs and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from spec_compare.exports.golden import is_lossy
from spec_compare.exports.tables import write_file
from spec_compare.figures.facets import Facet, facets, pivot
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import Row
from spec_compare.measuring import oracle

TOGETHER = 4
"""Max facets of one table; of more, each model has a table of its own."""
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip
Table = dict[str, dict[str, Row]]
"""{method: {baseline of a facet: its row}}."""
LOSSY = "its text is not the target's own"
DIFFERS = "its text differs from plain decoding's, so it has no speed"


def latex(result: Outcome, path: Path) -> list[Path]:
    """A file of tables that ``\\input`` reads; it needs the package booktabs."""
    blocks = [_latex_table(result, group, n) for n, group in enumerate(groups(facets(result.header)))]
    head = ["% \\usepackage{booktabs}", *(f"% {escape_comment(line)}" for line in circumstances(result))]
    return [write_file(path, "\n".join([*head, *blocks]).encode())]


def markdown(result: Outcome, path: Path) -> list[Path]:
    """A table with a column per model and temperature."""
    return [write_file(path, _markdown_table(result, facets(result.header)).encode())]


def groups(listed: Sequence[Facet]) -> list[list[Facet]]:
    """The facets of each table."""
    if len(listed) <= TOGETHER:
        return [list(listed)]
    return [list(group) for _, group in groupby(listed, key=lambda facet: facet.model)]


def circumstances(result: Outcome) -> list[str]:
    """What the figures depend on."""
    header = result.header
    target = header.targets[0]
    return [
        f"{header.date}, {target.device}, {target.dtype}, {header.environment.get('cpu', '')}",
        f"prompts: {header.prompts.source}, {sum(header.prompts.families.values())}; repeats {header.repeats}, "
        f"batch {header.batch}, seed {header.seed}",
        " ".join(header.command),
    ]


def caption(result: Outcome) -> str:
    return (
        f"Speedup over plain decoding with its {100 * result.header.interval:.4g} % bootstrap interval over prompts, "
        "and tokens per step"
    )


def best_speedups(result: Outcome, listed: Sequence[Facet], table: Table) -> dict[str, float | None]:
    """{baseline of a facet: the largest speedup there, as it is shown}, of texts that are the target's own.

    A contender that knows the text is left out.
    """
    knowing = {facts.name for facts in result.header.contenders if facts.methods == [oracle.NAME]}
    fair = {
        facet.baseline: [row for own in table.values() if (row := own.get(facet.baseline)) and _is_fair(row, knowing)]
        for facet in listed
    }
    return {key: max((round(row.speedup or 0.0, 2) for row in rows), default=None) for key, rows in fair.items()}


def _is_fair(row: Row, knowing: set[str]) -> bool:
    return row.speedup is not None and not is_lossy(row) and row.contender not in knowing


def _latex_table(result: Outcome, listed: list[Facet], number: int) -> str:
    table = pivot(result, listed)
    columns = best_speedups(result, listed, table)
    body = [
        " & ".join([escape_latex(name), *(_latex_cells(row.get(key), columns[key]) for key in columns)]) + r" \\"
        for name, row in table.items()
    ]
    rows = [row for own in table.values() for row in own.values()]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(caption(result))} ($\tau$).{_notes(rows)}}}",
            r"\medskip",
            rf"\label{{tab:comparison{'' if not number else f'-{number + 1}'}}}",
            rf"\begin{{tabular}}{{l{'rr' * len(listed)}}}",
            r"\toprule",
            *_latex_heads(listed),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _notes(rows: list[Row]) -> str:
    notes = [rf" $\ast$: {LOSSY}."] if any(map(is_lossy, rows)) else []
    return "".join([*notes, *([f" --: {DIFFERS}."] if any(r.speedup is None for r in rows) else [])])


def _latex_heads(listed: list[Facet]) -> list[str]:
    """A line of models, one of temperatures, and one of figures, with rules below the first two."""
    spans = [(model, 2 * len(list(group))) for model, group in groupby(listed, key=lambda facet: facet.model)]
    temperatures = [(f"$T = {f.temperature:g}$" + (f", {escape_latex(f.rest)}" if f.rest else ""), 2) for f in listed]
    figures = " & ".join(["Method", *[r"Speedup & $\tau$"] * len(listed)]) + r" \\"
    return [*_span_lines([(escape_latex(model), n) for model, n in spans]), *_span_lines(temperatures), figures]


def _span_lines(spans: Iterable[tuple[str, int]]) -> list[str]:
    cells, rules, at = [""], [], 2
    for title, columns in spans:
        cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{title}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + columns - 1}}}")
        at += columns
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _latex_cells(row: Row | None, largest: float | None) -> str:
    if row is None:
        return " & "
    steps = "--" if row.tokens_per_step is None else f"{row.tokens_per_step:.2f}"
    if row.speedup is None:
        return f"-- & {steps}"
    speedup = f"{row.speedup:.2f}"
    speedup = rf"\textbf{{{speedup}}}" if round(row.speedup, 2) == largest and not is_lossy(row) else speedup
    mark = r"$^{\ast}$" if is_lossy(row) else ""
    span = "" if row.low is None or row.high is None else rf"\,{{\scriptsize[{row.low:.2f}, {row.high:.2f}]}}"
    return f"{speedup}{mark}{span} & {steps}"


def escape_latex(text: str) -> str:
    """Text for LaTeX; characters that pdflatex has not in its default encoding become question marks."""
    return "".join(SPECIAL.get(c, c if c.isascii() and c.isprintable() else "?") for c in text)


def escape_comment(text: str) -> str:
    """Text for one line of a comment."""
    return " ".join(text.split())


def _markdown_table(result: Outcome, listed: list[Facet]) -> str:
    table = pivot(result, listed)
    columns = best_speedups(result, listed, table)
    rows = [row for own in table.values() for row in own.values()]
    lines = [
        "| method | " + " | ".join(escape_markdown(facet.title) for facet in listed) + " |",
        "| --- |" + " ---: |" * len(listed),
        *(
            f"| {escape_markdown(name)} | " + " | ".join(_markdown_cell(row.get(k), columns[k]) for k in columns) + " |"
            for name, row in table.items()
        ),
        "",
        f"{caption(result)}; {escape_markdown(circumstances(result)[0])}.",
        *([f"\\*: {LOSSY}."] if any(map(is_lossy, rows)) else []),
        *([f"-: {DIFFERS}."] if any(row.speedup is None for row in rows) else []),
    ]
    return "\n".join(lines) + "\n"


def _markdown_cell(row: Row | None, largest: float | None) -> str:
    if row is None:
        return ""
    steps = "-" if row.tokens_per_step is None else f"{row.tokens_per_step:.2f}"
    if row.speedup is None:
        return f"-, {steps}"
    speedup = f"{row.speedup:.2f}×"
    speedup = f"**{speedup}**" if round(row.speedup, 2) == largest and not is_lossy(row) else speedup
    mark = r"\*" if is_lossy(row) else ""
    span = "" if row.low is None or row.high is None else f" ({row.low:.2f} to {row.high:.2f})"
    return f"{speedup}{mark}{span}, {steps}"


def escape_markdown(text: str) -> str:
    """Text for a cell: no character begins a markup, and no line ends."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(text.split()))
