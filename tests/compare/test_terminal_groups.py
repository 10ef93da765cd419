"""The terminal's tables: grouped by model and settings of the text, as in the report, at every width."""

from __future__ import annotations

import attrs
import pytest
from spec_cli.main import run_command
from spec_commands.tables import Cells, is_fitting, lay_out
from spec_compare.figures.columns import informative_columns
from spec_compare.figures.outcome import recompute_outcome
from spec_compare.figures.overlap import intervals_overlap
from spec_compare.figures.summary import rows
from spec_compare.figures.table import cells_of, cut_worst_families, show_rows
from spec_compare.records.reading import read_results
from spec_compare.rerun import agreement, statement

from tests.compare.test_compare import begin, compare, folder, words  # noqa: F401
from tests.compare.test_summary import pair

GROUPED = Cells(
    ["method", "speedup", "identical"],
    [["plain", "1.00×", "yes"], ["ngram", "12.00×", "yes"], ["plain", "1.00×", "yes"], ["a longer name", "-", "no"]],
    {"method", "identical"},
    {0: "m, temperature 0", 2: "m, temperature 0.8"},
)


def test_groups_stand_below_their_titles_with_columns_of_one_width():
    heads, rule, first, plain, ngram, second, _, longer = lay_out(GROUPED, 80)

    assert (first, second) == ("m, temperature 0:", "m, temperature 0.8:")
    assert set(rule) == {"─"}
    assert {
        line.index(cell) + len(cell) for line, cell in ((heads, "speedup"), (plain, "1.00×"), (ngram, "12.00×"))
    } == {heads.index("speedup") + len("speedup")}
    assert longer.index("no") == heads.index("identical")


def test_groups_of_a_list_stand_above_its_names():
    lines = lay_out(GROUPED, 20)

    assert lines[:2] == ["m, temperature 0:", "plain"]
    assert lines.index("m, temperature 0.8:") == len(lines) // 2


def test_a_title_that_commands_a_terminal_is_shown():
    cells = attrs.evolve(GROUPED, groups={0: "\x1b[2J[bold]"})

    assert not any("\x1b" in line for width in (80, 20) for line in lay_out(cells, width))
    assert "\\x1b[2J[bold]:" in lay_out(cells, 80)


def test_names_are_those_inside_the_group(compare, folder, capsys):  # noqa: F811
    """Every temperature has its own plain decoding, first in its group."""
    code, out, _ = compare("--method", "repeat", "--sweep", "temperature=0,0.9", "--no-bounds", "--out", "out")
    table = out.split("all families, 3 prompts\n")[1].split("\n\n")[0].splitlines()
    shown = [line.split("  ")[0] for line in table[2:]]

    assert code == 0
    assert shown == ["toy-0, temperature 0:", "plain", "repeat", "toy-0, temperature 0.9:", "plain", "repeat"]
    assert run_command(["compare", "show", "out"]) == 0
    assert capsys.readouterr().out.split("\n\n")[:3] == out.split("\n\n")[:3]


def test_one_model_and_temperature_have_no_title(compare):  # noqa: F811
    _, out, _ = compare("--method", "repeat", "--no-bounds")

    assert "temperature 0" not in out


def test_the_worst_family_is_cut_where_the_table_would_not_fit(monkeypatch, capsys):
    """A narrow table with a cut name is easier to compare than a list."""
    long_name = "mathematical_reasoning"
    laps = pair("a", 4, 2, family=long_name) + pair("b", 4, 1, family="qa")
    table_rows = rows(laps, {})
    whole = [row for row in table_rows if row.family == "all"]
    names = informative_columns(whole, False, 1)
    cut = cells_of(cut_worst_families(whole), names, 1, 0.9)
    width = next(width for width in range(30, 100) if is_fitting(cut, width))
    assert not is_fitting(cells_of(whole, names, 1, 0.9), width)

    monkeypatch.setattr("spec_compare.figures.table.terminal_width", lambda: width)
    show_rows(table_rows, [])
    last = capsys.readouterr().out.split("all families")[1]
    assert long_name not in last and "mat…ing" in last and "\n  speedup" not in last


def test_the_heading_of_intervals_says_what_they_are(capsys):
    laps = [lap for i in range(5) for lap in pair(str(i), 4, 2 + i / 10)]
    show_rows(rows(laps, {}), [], level=0.95)

    assert "95% CI" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(1.0, 2.0), (1.5, 3.0)], True),
        ([(1.0, 2.0), (2.0, 3.0)], True),
        ([(1.0, 2.0), (2.1, 3.0)], False),
        ([(1.0, 2.0), (1.5, 3.0), (2.5, 4.0)], False),
        ([(1.0, 2.0), (None, None)], None),
    ],
)
def test_intervals_overlap_if_they_have_a_value_in_common(ends, expected):
    (row,) = [r for r in rows(pair("a", 4, 2), {}) if r.contender == "fast" and r.family == "all"]

    assert intervals_overlap(attrs.evolve(row, low=low, high=high) for low, high in ends) is expected


@pytest.mark.parametrize(
    ("now", "words_of_it"),
    [
        ((1.4, 1.2, 1.6), "1.40 (1.20-1.60) now; the intervals overlap"),
        ((0.9, 0.8, 1.0), "0.90 (0.80-1.00) now; the intervals do not overlap"),
        ((0.9, None, None), "0.90 now; intervals need 5 prompts"),
    ],
)
def test_a_rerun_says_whether_the_intervals_overlap(tmp_path, monkeypatch, now, words_of_it):
    begin(monkeypatch, tmp_path)
    assert run_command(words("--method", "repeat", "--no-bounds", "--out", "out")) == 0
    whole = recompute_outcome(read_results(tmp_path / "out"))

    def outcome_with(speedup, low, high):
        return attrs.evolve(whole, rows=[attrs.evolve(row, speedup=speedup, low=low, high=high) for row in whole.rows])

    lines = statement(
        tmp_path / "b.zip", outcome_with(1.5, 1.3, 1.7), outcome_with(*now), agreement(whole.laps, whole.laps)
    )
    assert lines[-1] == f"repeat: speedup 1.50 (1.30-1.70) in the bundle, {words_of_it}"


@pytest.mark.parametrize("options", [[], ["--bounds"]])
def test_a_rerun_measures_costs_only_if_the_bundle_has_them_or_on_request(tmp_path, monkeypatch, capsys, options):
    begin(monkeypatch, tmp_path)
    assert run_command(words("--method", "repeat", "--no-bounds", "--out", "out")) == 0
    assert run_command(["compare", "bundle", "out", "b.zip", "--no-report"]) == 0
    assert run_command(["compare", "--rerun", "b.zip", "--out", "again", *options]) == 0

    assert bool(recompute_outcome(read_results(tmp_path / "again")).costs) is bool(options)


def test_ctrl_c_says_what_was_measured_and_how_to_keep_it(compare, folder, monkeypatch):  # noqa: F811
    from spec_compare.measuring import measure

    laps, real = [], measure.lap

    def lap(*arguments):
        if len(laps) % 5 == 4:  # after two that warm up and two that count
            laps.append(None)
            raise KeyboardInterrupt
        laps.append(real(*arguments))
        return laps[-1]

    monkeypatch.setattr(measure, "lap", lap)
    code, _, err = compare("--method", "repeat", "--no-bounds")
    assert code == 130 and "2 of 6 laps were measured, none is kept; --out DIR keeps and continues them" in err

    code, _, err = compare("--method", "repeat", "--no-bounds", "--out", "out")
    assert code == 130 and "2 of 6 laps are in out; the same command continues after them" in err
    assert "spec compare show out prints what is finished" in err
