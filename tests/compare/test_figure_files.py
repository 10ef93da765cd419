"""Figures as files: each drawing in each format, of the width of a column, in colours that print."""

from __future__ import annotations

import re

import attrs
import pytest

pytest.importorskip("matplotlib", reason="needs the extra report")

from spec_cli.main import run_command
from spec_commands.timing_warnings import TimingWarning
from spec_compare.exports.figure_files import COLOURS, NAME_MAX, WIDTH, handle_of, write_figures
from spec_compare.figures import outcome
from spec_compare.records.reading import read_results
from spec_compare.report import svg
from spec_compare.report.looks import Key

from tests.compare.test_compare import begin, words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        assert run_command(words("--method", "repeat", "--method", "mute", "--out", "out")) == 0
    return folder


@pytest.fixture
def result(folder):
    return attrs.evolve(outcome.recompute_outcome(read_results(folder / "out")), warnings=[])


def test_every_drawing_is_written_in_each_format(result, tmp_path):
    paths = write_figures(result, tmp_path / "f", ["svg", "pdf"])

    assert {"speedup.svg", "speedup.pdf", "acceptance.svg"} <= {path.name for path in paths}
    assert all(path.stat().st_size > 1000 for path in paths)
    assert all(path.read_bytes().startswith(b"%PDF") for path in paths if path.suffix == ".pdf")


def test_a_drawing_has_the_width_of_a_column_and_colours_that_print(result, tmp_path):
    for path in write_figures(result, tmp_path / "f", ["svg"]):
        text = path.read_text()
        assert float(re.search(r'width="([\d.]+)pt"', text)[1]) == pytest.approx(72 * WIDTH)
        assert not any(placeholder in text for placeholder in svg.VARIABLES), "a colour of the page's style sheet"
        assert "unreliable" not in text
    assert COLOURS[0] in (tmp_path / "f" / "speedup.svg").read_text()


def test_a_legend_is_drawn_once_and_unreliable_times_are_named(result, tmp_path):
    busy = attrs.evolve(result, warnings=[TimingWarning("load", None, "other programs ran")])
    texts = {path.stem: path.read_text() for path in write_figures(busy, tmp_path / "f", ["svg"])}

    assert all("Times are unreliable" in text for text in texts.values())
    assert len(re.findall(r">repeat</text>", texts["acceptance"])) == 1


def test_names_of_a_legend_fit_and_command_nothing():
    """A font has no control characters: each of them would be a warning."""
    for hatch in (None, "//"):
        key = Key("a\x1b[2J\x00 long name " * 5, svg.VARIABLES[svg.series(0)], "", "none", hatch)
        label = handle_of(key).get_label()
        assert len(label) <= NAME_MAX and label.isprintable()


def test_the_command_refuses_an_unknown_format(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    assert run_command(["compare", "export", "out", "--figures", "f", "--format", "svg,png"]) == 2
    assert "--format 'png' is not known" in capsys.readouterr().err and not (folder / "f").exists()
