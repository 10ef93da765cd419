"""Tables for papers: methods by models and temperatures; LaTeX that compiles, Markdown whose cells stay in place."""

from __future__ import annotations

import re
import shutil
import subprocess

import attrs
import pytest
from spec_cli.main import run_command
from spec_commands.timing_warnings import TimingWarning
from spec_compare.exports import papers
from spec_compare.figures import outcome
from spec_compare.figures.facets import facets, pivot
from spec_compare.records.reading import read_results

from tests.compare.test_compare import begin, words

HOSTILE = r"a_b & 50% $x$ {c} \d | #e ~f ^g <h> *i* `j` é"
TEX = shutil.which("pdflatex")


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """Results of two models at two temperatures, with an oracle and a method whose text differs."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        options = ["--method", "repeat", "--method", "mute", "--sweep", "temperature=0,0.9", "--oracle", "2"]
        assert (
            run_command(words(*options, "--target", "toy:hybrid", "--limit", "1", "--no-bounds", "--out", "out")) == 0
        )
    return folder


SPEEDS = {"repeat": 2.0, "mute": 1.0, "oracle": 3.0}


@pytest.fixture
def result(comparison_folder):
    """The outcome with speedups and intervals that do not depend on the machine."""
    whole = outcome.recompute_outcome(read_results(comparison_folder / "out"), 0.95)
    return attrs.evolve(whole, rows=[give_speed(row) for row in whole.rows], warnings=[])


def give_speed(row):
    speedup = next((value for name, value in SPEEDS.items() if row.contender.startswith(name)), None)
    return row if speedup is None else attrs.evolve(row, speedup=speedup, low=speedup - 0.1, high=speedup + 0.1)


def with_rows(result, **changes):
    """The outcome with other values in the rows of one contender."""
    return attrs.evolve(
        result, rows=[attrs.evolve(r, **changes) if r.contender.startswith("mute") else r for r in result.rows]
    )


def test_facets_are_models_and_temperatures_and_series_are_methods(result):
    listed = facets(result.header)

    assert [(f.model, f.temperature, f.rest) for f in listed] == [
        ("toy:dense", 0.0, ""), ("toy:dense", 0.9, ""), ("toy:hybrid", 0.0, ""), ("toy:hybrid", 0.9, ""),
    ]  # fmt: skip
    assert all(list(f.series.values()) == ["repeat", "mute", "oracle 2"] for f in listed)
    table = pivot(result, listed)
    assert {name: len(row) for name, row in table.items()} == {"repeat": 4, "mute": 4, "oracle 2": 4}


def test_latex_has_a_column_group_per_model_and_temperature(result, tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "ABREAST", 4)
    monkeypatch.setattr(papers, "TEXT_WIDTH", 1000)
    (path,) = papers.latex(result, tmp_path / "t.tex")
    text = path.read_text()

    assert r"\multicolumn{6}{c}{toy:dense} & \multicolumn{6}{c}{toy:hybrid}" in text
    assert text.count(r"\multicolumn{3}{c}{$T = 0$}") == text.count(r"\multicolumn{3}{c}{$T = 0.9$}") == 2
    assert r"95 \% bootstrap" in text and "[" in text
    (line,) = re.findall(r"^repeat & .*$", text, re.M)
    assert line.count("&") == 12
    assert text.count(r"\begin{table}") == 1
    assert not any(r"\textbf" in line for line in text.splitlines() if line.startswith("oracle")), "it knows the text"


def test_two_facets_are_abreast_if_a_line_holds_them(result, tmp_path):
    """Two models at one temperature: with short names they fit, with long ones they are groups of rows."""
    plain = [facts for facts in result.header.contenders if "0.9" not in facts.name]
    header = attrs.evolve(result.header, contenders=plain)
    rows = [row for row in result.rows if row.contender in {facts.name for facts in plain}]
    two = attrs.evolve(result, header=header, rows=[attrs.evolve(row, worst_speedup=None) for row in rows])
    wide = attrs.evolve(two, rows=[attrs.evolve(row, worst_speedup=0.5, worst_family="f" * 40) for row in rows])
    texts = [papers.latex(one, tmp_path / "t.tex")[0].read_text() for one in (two, wide)]

    assert [text.count(r"\emph{") for text in texts] == [0, 2]
    assert "f" * 20 not in texts[1] and "fff" in texts[1]


def test_several_facets_are_groups_of_rows(result, tmp_path):
    text = papers.latex(result, tmp_path / "t.tex")[0].read_text()

    assert text.count(r"\emph{toy:dense, $T = 0$}") == text.count(r"\emph{toy:hybrid, $T = 0.9$}") == 1
    lines = re.findall(r"^repeat & .*$", text, re.M)
    assert len(lines) == 4 and all(line.count("&") == 3 for line in lines)
    assert papers.WORST in text


def test_a_value_is_bold_only_if_no_other_interval_covers_it(result, tmp_path):
    """mute at most 1.10 leaves repeat's 2.00 the best; at most 2.00 covers it; without an interval nothing is known."""
    clear, covered, unknown = (
        papers.latex(with_rows(result, high=high), tmp_path / "t.tex")[0].read_text() for high in (1.1, 2.0, None)
    )

    assert clear.count(r"\textbf{2.00}") == 4
    assert r"\textbf" not in covered and r"\textbf" not in unknown


def test_unreliable_times_are_named_wherever_the_figures_go(result, tmp_path):
    busy = attrs.evolve(result, warnings=[TimingWarning("load", None, "other programs ran")])
    texts = [write(busy, tmp_path / "t")[0].read_text() for write in (papers.latex, papers.markdown)]

    assert all("Times are unreliable: other programs were busy" in text for text in texts)
    assert "unreliable" not in papers.latex(result, tmp_path / "t")[0].read_text()


def test_many_facets_are_a_table_per_model(result, tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "TOGETHER", 3)
    (path,) = papers.latex(result, tmp_path / "t.tex")

    assert path.read_text().count(r"\begin{table}") == 2 and r"\label{tab:comparison-2}" in path.read_text()


def test_a_text_that_differs_has_no_speed_and_a_lossy_one_is_marked(result, tmp_path):
    differing = papers.markdown(with_rows(result, speedup=None), tmp_path / "d.md")[0].read_text()
    lossy = papers.markdown(with_rows(result, label="LOSSY: x", speedup=99.0), tmp_path / "l.md")[0].read_text()

    assert "| mute | -, " in differing and papers.DIFFERS in differing
    assert r"99.00×\*" in lossy and "**99" not in lossy and papers.LOSSY in lossy


def test_markdown_has_a_column_per_model_and_temperature(result, tmp_path):
    head, rule, *rows = papers.markdown(result, tmp_path / "t.md")[0].read_text().splitlines()

    assert head == (
        "| method | toy:dense, temperature 0 | toy:dense, temperature 0.9 "
        "| toy:hybrid, temperature 0 | toy:hybrid, temperature 0.9 |"
    )
    assert [row.count("|") for row in (head, rule, *rows[:3])] == [6] * 5
    assert "**" in "".join(rows[:2])


def test_names_do_not_become_markup(result, tmp_path):
    series = [attrs.evolve(f, series=dict.fromkeys(f.series, HOSTILE)) for f in facets(result.header)]
    cell = papers.escape_markdown(HOSTILE)

    assert len(series) == 4
    assert not re.search(r"(?<!\\)[|*`<_#]", cell) and "\n" not in papers.escape_markdown("a\nb")
    assert papers.escape_latex("50% & a_b\\") == r"50\% \& a\_b\textbackslash{}"


@pytest.mark.skipif(TEX is None, reason="pdflatex is not installed")
def test_the_latex_compiles_with_any_name(result, tmp_path, monkeypatch):
    """With booktabs alone, and without an overfull warning that would say a cell has lost its column."""
    renamed = [attrs.evolve(c, name=c.name.replace("mute", HOSTILE)) for c in result.header.contenders]
    rows = [attrs.evolve(r, contender=r.contender.replace("mute", HOSTILE)) for r in result.rows]
    header = attrs.evolve(result.header, contenders=renamed, command=["a\n\\b", "%"])
    papers.latex(attrs.evolve(result, header=header, rows=rows), tmp_path / "t.tex")
    page = r"\documentclass{article}\usepackage{booktabs}"
    (tmp_path / "m.tex").write_text(page + r"\begin{document}\input{t.tex}\end{document}")
    done = subprocess.run(
        [TEX, "-interaction=nonstopmode", "-halt-on-error", "m.tex"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout[-1500:]
    assert (tmp_path / "m.pdf").stat().st_size > 1000 and "Overfull" not in done.stdout


def test_the_command_writes_both_and_names_no_level_without_intervals(comparison_folder, monkeypatch):
    monkeypatch.chdir(comparison_folder)
    assert run_command(["compare", "export", "out", "--latex", "a.tex", "--markdown", "a.md", "--level", "0.99"]) == 0

    assert (
        r"\caption{Speedup over plain decoding, and tokens" in (comparison_folder / "a.tex").read_text()
        and "Speedup over plain decoding, and tokens" in (comparison_folder / "a.md").read_text()
    )
