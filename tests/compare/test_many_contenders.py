"""The report of twenty contenders: small multiples, looks that stay apart, folded warnings, and its conditions."""

from __future__ import annotations

import re

import attrs
import pytest
from spec_cli.main import run_command
from spec_commands.timing_warnings import TimingWarning
from spec_compare.figures import outcome
from spec_compare.figures.summary import ALL
from spec_compare.figures.titles import cut_middle
from spec_compare.records.header import Session
from spec_compare.records.reading import read_results
from spec_compare.report import figures, page
from spec_compare.report.figure import TOGETHER, facet_panels
from spec_compare.report.looks import contender_looks

from tests.compare.test_compare import begin, words
from tests.compare.test_report import Outline

pytest.importorskip("matplotlib")
SWEEPS = ["--sweep", "repeat.length=1,2,3,4,5,6,7,8,9,10", "--sweep", "temperature=0,0.9"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Ten methods at two temperatures."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        assert run_command(words("--method", "repeat", *SWEEPS, "--limit", "1", "--trace", "--out", "out")) == 0
    return outcome.recompute_outcome(read_results(folder / "out"))


@pytest.fixture(scope="module")
def outline(result):
    return Outline(page.page(result))


def test_a_drawing_has_at_most_eight_curves_of_one_model_and_temperature(result):
    rows = [row for row in result.rows if row.family == ALL and row.draft_acceptance is not None]
    panels = facet_panels(result, rows)

    assert len(rows) == 20
    assert [panel.title for panel in panels] == [
        f"toy-0, temperature {t} ({n} of 2)" for t in ("0", "0.9") for n in (1, 2)
    ]
    assert [len(panel.rows) for panel in panels] == [5] * 4 and TOGETHER == 8
    assert [row.contender for panel in panels for row in panel.rows] == sorted(
        (row.contender for row in rows), key=lambda name: ("0.9" in name, int(re.search(r"length=(\d+)", name)[1]))
    )


def test_a_method_looks_the_same_at_every_temperature_and_like_no_other(result):
    own = contender_looks(result)
    series = {name: look for name, look in own.items() if name.endswith("temperature=0")}

    assert len(series) == 10
    assert len({(look.color, look.marker) for look in series.values()}) == 10
    assert len({(look.color, look.linestyle) for look in series.values()}) == 10
    for name, look in series.items():
        assert own[name.replace("temperature=0", "temperature=0.9")] == look


def test_every_figure_has_a_legend_or_names_in_its_drawing(result):
    for figure in figures.figures(result):
        names = {key.name for key in figure.legend}
        direct = "".join(part.svg for part in figure.parts)
        assert all(f"repeat:length={n}" in names or f">repeat:length={n}<" in direct for n in range(1, 11)), figure.name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ngram", "ngram"),
        ("draft-model:p_min=0.25 draft_max=16 rule=rejection", "draft-model:p_min…max=16 rule=rejection"),
    ],
)
def test_a_long_name_is_cut_in_the_middle(name, short):
    assert cut_middle(name) == (short if len(name) <= 36 else f"{name[:18]}…{name[-17:]}")
    assert len(cut_middle(name)) <= 36


def test_warnings_of_many_contenders_are_one_line_with_the_list_folded(result):
    warnings = [TimingWarning("scatter", f"m{i}", f"m{i} is slow") for i in range(20)]
    warnings += [TimingWarning("load", None, "other programs kept 1 busy")]
    markup = page.page(attrs.evolve(result, warnings=warnings))
    (note,) = re.findall(r'<details class="note printed">.*?</details>', markup, re.S)

    assert (
        "the laps of 20 contenders scatter; other programs were busy." in re.search("<summary>(.*?)</summary>", note)[1]
    )
    assert all(f"<li>m{i} is slow</li>" in note for i in range(20))
    assert "m3 is slow" not in markup.replace(note, "")


def test_every_column_is_explained_on_hover_and_in_the_legend(outline):
    links = {
        a["href"][1:]: a.get("title") for tag, a in outline.tags if tag == "a" and a["href"].startswith("#column-")
    }
    entries = {a["id"] for tag, a in outline.tags if a.get("id", "").startswith("column-")}

    assert links.keys() == entries and len(entries) > 10
    assert all(links.values())
    assert "".join(outline.words).count("Tokens that a step emits") == 1, "the legend; on hover it is an attribute"


def test_the_rows_stand_by_model_and_temperature(outline):
    groups = [a for tag, a in outline.tags if tag == "tr" and a.get("class") == "group"]

    assert len(groups) == 2 * 2 * 3, "two facets in both tables, of all prompts and of each of two families"
    assert "toy-0, temperature 0.9" in outline.words


def test_the_conditions_name_temperatures_memory_plugins_and_continuations(result):
    sessions = [Session("2031-02-03T04:05:06+00:00", [], None, 3), Session("2031-02-04T05:06:07+00:00", [], None, 9)]
    header = attrs.evolve(result.header, date="2031-02-01T01:02:03+00:00", memory_bytes=96 << 30)
    words = "".join(Outline(page.page(attrs.evolve(result, sessions=sessions, header=header))).words)

    assert words.count("2031-02-01 01:02 UTC, continued 2031-02-03 04:05 UTC and 2031-02-04 05:06 UTC") == 2
    assert "96.0 GiB" in words
    assert re.search(r"temperatures\s*0\.0, 0\.9", words)
    (repeat,) = [plugin for plugin in result.header.plugins if plugin.name == "repeat"]
    assert f"repeat (tests, code {repeat.sha256[:12]})" in words


def test_prompts_stand_beside_their_texts_unless_they_were_not_stored(result, outline):
    prompts = {prompt.id: prompt.given for prompt in result.prompts}

    assert prompts and all(content in outline.words for content in prompts.values())
    bare = Outline(page.page(attrs.evolve(result, prompts=[])))
    assert not any(content in bare.words for content in prompts.values())


def test_every_prompt_has_the_legend_of_its_colours(result, outline):
    legends = [a for tag, a in outline.tags if tag == "p" and a.get("class") == "legend"]

    assert len(legends) == 1 + len(result.prompts)
