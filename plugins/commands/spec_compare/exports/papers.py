"""Tables for papers: methods by models and temperatures, as LaTeX with booktabs and as Markdown.

A table of one or two facets has them as groups of columns, a larger one as groups of rows, so that it fits a page.
"""

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
from spec_compare.figures.timing_warnings import describe_unreliability
from spec_compare.figures.titles import cut_middle
from spec_compare.records.record import ORACLE

ABREAST = 2
"""Max facets that are groups of columns."""
TOGETHER = 6
"""Max facets of one table; of more, each model has a table of its own."""
NAME_MAX, FAMILY_MAX = 26, 12
"""Max characters of a method and of a family of prompts in LaTeX."""
TEXT_WIDTH = 345
"""Points of a line of LaTeX's article in its default size."""
CHARACTER, SMALL_CHARACTER, SEPARATION = 4.6, 3.7, 12
"""Points of a character of a table, of an interval's, and between two columns."""
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "…": r"\ldots{}", '"': r"\textquotedbl{}",
}  # fmt: skip
Table = dict[str, dict[str, Row]]
"""{method: {baseline of a facet: its row}}."""
LOSSY = "its text is not the target's own"
WORST = "the family of prompts with the smallest speedup"
DIFFERS = "its text differs from plain decoding's, so it has no speed"


def latex(outcome: Outcome, path: Path) -> list[Path]:
    """A file of tables that ``\\input`` reads; it needs the package booktabs."""
    blocks = [_latex_table(outcome, group, n) for n, group in enumerate(groups(facets(outcome.header)))]
    head = ["% \\usepackage{booktabs}", *(f"% {escape_comment(line)}" for line in circumstances(outcome) if line)]
    return [write_file(path, "\n".join([*head, *blocks]).encode())]


def markdown(outcome: Outcome, path: Path) -> list[Path]:
    """A table with a column per model and temperature."""
    return [write_file(path, _markdown_table(outcome, facets(outcome.header)).encode())]


def groups(listed: Sequence[Facet]) -> list[list[Facet]]:
    """The facets of each table."""
    if len(listed) <= TOGETHER:
        return [list(listed)]
    return [list(group) for _, group in groupby(listed, key=lambda facet: facet.model)]


def circumstances(outcome: Outcome) -> list[str]:
    """What the figures depend on."""
    header = outcome.header
    target = header.targets[0]
    return [
        f"{header.date}, {target.device}, {target.dtype}, {header.environment.get('cpu', '')}",
        f"prompts: {header.prompts.source}, {sum(header.prompts.families.values())}; repeats {header.repeats}, "
        f"batch {header.batch}, seed {header.seed}",
        " ".join(header.command),
    ]


def caption(outcome: Outcome) -> str:
    """What the figures are; intervals are named if there are some."""
    level = f" with its {100 * outcome.header.interval:.4g} % bootstrap interval over prompts"
    has_intervals = any(row.low is not None and row.contender not in outcome.baselines.values() for row in outcome.rows)
    return f"Speedup over plain decoding{level if has_intervals else ''}, and tokens per step"


def best_speedups(outcome: Outcome, listed: Sequence[Facet], table: Table) -> dict[str, float | None]:
    """{baseline of a facet: the speedup that is best there, as it is shown}, of texts that are the target's own.

    None if another contender's interval covers it, or is not known. A contender that knows the text is left out.
    """
    knowing = {facts.name for facts in outcome.header.contenders if facts.methods == [ORACLE]}
    fair = {
        facet.baseline: [row for own in table.values() if (row := own.get(facet.baseline)) and _is_fair(row, knowing)]
        for facet in listed
    }
    return {key: _clearly_best(rows) for key, rows in fair.items()}


def _clearly_best(rows: list[Row]) -> float | None:
    """The largest speedup, if there are others and no interval of theirs covers it."""
    ordered = sorted(rows, key=lambda row: row.speedup or 0.0)
    if len(ordered) < 2 or any(row.high is None or row.high >= (ordered[-1].speedup or 0.0) for row in ordered[:-1]):
        return None
    return round(ordered[-1].speedup or 0.0, 2)


def _is_fair(row: Row, knowing: set[str]) -> bool:
    return row.speedup is not None and not is_lossy(row) and row.contender not in knowing


def _latex_table(outcome: Outcome, listed: list[Facet], number: int) -> str:
    table = pivot(outcome, listed)
    rows = [row for own in table.values() for row in own.values()]
    figures = figures_of(rows)
    abreast = len(listed) <= ABREAST and abreast_width(table, figures) <= TEXT_WIDTH
    layout = _columns_of_facets if abreast else _rows_of_facets
    groups = len(listed) if abreast else 1
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering\small",
            rf"\caption{{{escape_latex(caption(outcome))} ($\tau$).{_notes(outcome, rows)}}}",
            r"\medskip",
            rf"\label{{tab:comparison{'' if not number else f'-{number + 1}'}}}",
            rf"\begin{{tabular}}{{l{'r' * len(figures) * groups}}}",
            r"\toprule",
            *layout(outcome, listed, table, figures),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def figures_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """The heads of the figures of a facet; the worst family is one of them if there are several families."""
    has_worst = any(row.worst_family is not None for row in rows)
    return ("Speedup", *(["Worst"] if has_worst else []), r"$\tau$")


def abreast_width(table: Table, figures: Sequence[str]) -> float:
    """Points of a table with groups of columns, about."""
    rows = {key: [own[key] for own in table.values() if key in own] for own in table.values() for key in own}
    names = max((len(cut_middle(name, NAME_MAX)) for name in table), default=0)
    return (
        names * CHARACTER
        + sum(_facet_width(own) for own in rows.values())
        + SEPARATION * (1 + len(figures) * len(rows))
    )


def _facet_width(rows: Iterable[Row]) -> float:
    """Points of the columns of one facet."""
    rows = list(rows)
    spans = [f"[{r.low:.2f}, {r.high:.2f}]" for r in rows if r.low is not None and r.high is not None]
    speedups = max((len(f"{row.speedup:.2f}") for row in rows if row.speedup is not None), default=2)
    worst = max((len(_worst_text(row)) for row in rows), default=0)
    steps = max((len(f"{row.tokens_per_step or 0:.2f}") for row in rows), default=0)
    return (speedups + worst + steps) * CHARACTER + max(map(len, spans), default=0) * SMALL_CHARACTER


def _worst_text(row: Row) -> str:
    """The smallest speedup and its family; empty without families."""
    if row.worst_speedup is None:
        return ""
    return f"{row.worst_speedup:.2f} {cut_middle(row.worst_family or '', FAMILY_MAX)}"


def _columns_of_facets(outcome: Outcome, listed: list[Facet], table: Table, figures: tuple[str, ...]) -> list[str]:
    best = best_speedups(outcome, listed, table)
    return [
        *_latex_heads(listed, figures),
        r"\midrule",
        *(
            " & ".join(
                [
                    latex_name(name),
                    *(_latex_cells(row.get(key), best[key], figures) for key in best),
                ]
            )
            + r" \\"
            for name, row in table.items()
        ),
    ]


def _rows_of_facets(outcome: Outcome, listed: list[Facet], table: Table, figures: tuple[str, ...]) -> list[str]:
    best = best_speedups(outcome, listed, table)
    lines = [" & ".join(["Method", *figures]) + r" \\"]
    for facet in listed:
        title = ", ".join(
            filter(None, (escape_latex(facet.model), f"$T = {facet.temperature:g}$", escape_latex(facet.rest)))
        )
        lines += [r"\midrule", rf"\multicolumn{{{1 + len(figures)}}}{{l}}{{\emph{{{title}}}}} \\"]
        lines += [
            " & ".join(
                [
                    latex_name(name),
                    _latex_cells(row[facet.baseline], best[facet.baseline], figures),
                ]
            )
            + r" \\"
            for name, row in table.items()
            if facet.baseline in row
        ]
    return lines


def _notes(outcome: Outcome, rows: list[Row]) -> str:
    notes = [rf" $\ast$: {LOSSY}."] if any(map(is_lossy, rows)) else []
    notes += [f" --: {DIFFERS}."] if any(r.speedup is None for r in rows) else []
    notes += [f" Worst: {WORST}."] if any(r.worst_family is not None for r in rows) else []
    note = describe_unreliability(outcome.warnings)
    return "".join([*notes, f" {escape_latex(note)}" if note else ""])


def _latex_heads(listed: list[Facet], figures: tuple[str, ...]) -> list[str]:
    """A line of models, one of temperatures, and one of figures, with rules below the first two."""
    width = len(figures)
    spans = [(model, width * len(list(group))) for model, group in groupby(listed, key=lambda facet: facet.model)]
    temperatures = [
        (f"$T = {f.temperature:g}$" + (f", {escape_latex(f.rest)}" if f.rest else ""), width) for f in listed
    ]
    heads = " & ".join(["Method", *[" & ".join(figures)] * len(listed)]) + r" \\"
    return [*_span_lines([(escape_latex(model), n) for model, n in spans]), *_span_lines(temperatures), heads]


def _span_lines(spans: Iterable[tuple[str, int]]) -> list[str]:
    cells, rules, at = [""], [], 2
    for title, columns in spans:
        cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{title}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + columns - 1}}}")
        at += columns
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _latex_cells(row: Row | None, best: float | None, figures: tuple[str, ...]) -> str:
    if row is None:
        return " & " * (len(figures) - 1)
    steps = "--" if row.tokens_per_step is None else f"{row.tokens_per_step:.2f}"
    worst = escape_latex(_worst_text(row)) or "--"
    return " & ".join([_latex_speedup(row, best), *([worst] if len(figures) > 2 else []), steps])


def _latex_speedup(row: Row, best: float | None) -> str:
    if row.speedup is None:
        return "--"
    speedup = f"{row.speedup:.2f}"
    speedup = rf"\textbf{{{speedup}}}" if round(row.speedup, 2) == best and not is_lossy(row) else speedup
    mark = r"$^{\ast}$" if is_lossy(row) else ""
    span = "" if row.low is None or row.high is None else rf"\,{{\scriptsize[{row.low:.2f}, {row.high:.2f}]}}"
    return f"{speedup}{mark}{span}"


def latex_name(contender: str) -> str:
    """The name of a contender as LaTeX, cut in the middle if it is long."""
    return escape_latex(cut_middle(contender, NAME_MAX))


def escape_latex(text: str) -> str:
    """Text for LaTeX; characters that pdflatex has not in its default encoding become question marks."""
    return "".join(SPECIAL.get(c, c if c.isascii() and c.isprintable() else "?") for c in text)


def escape_comment(text: str) -> str:
    """Text for one line of a comment."""
    return " ".join(text.split())


def _markdown_table(outcome: Outcome, listed: list[Facet]) -> str:
    table = pivot(outcome, listed)
    columns = best_speedups(outcome, listed, table)
    rows = [row for own in table.values() for row in own.values()]
    lines = [
        "| method | " + " | ".join(escape_markdown(facet.title) for facet in listed) + " |",
        "| --- |" + " ---: |" * len(listed),
        *(
            f"| {escape_markdown(name)} | " + " | ".join(_markdown_cell(row.get(k), columns[k]) for k in columns) + " |"
            for name, row in table.items()
        ),
        "",
        f"{caption(outcome)}; {escape_markdown(circumstances(outcome)[0])}.",
        *([f"\\*: {LOSSY}."] if any(map(is_lossy, rows)) else []),
        *([f"-: {DIFFERS}."] if any(row.speedup is None for row in rows) else []),
        *([f"worst: {WORST}."] if any(row.worst_family is not None for row in rows) else []),
        escape_markdown(describe_unreliability(outcome.warnings)),
    ]
    return "\n".join(lines).rstrip() + "\n"


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
    worst = "" if row.worst_family is None else f", worst {row.worst_speedup:.2f}× {escape_markdown(row.worst_family)}"
    return f"{speedup}{mark}{span}{worst}, {steps}"


def escape_markdown(text: str) -> str:
    """Text for a cell: no character begins a markup, and no line ends."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(text.split()))
