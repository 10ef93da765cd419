"""The HTML report: what it shows, and that nothing in prompts or results gets out of its place."""

from __future__ import annotations

import builtins
import json
import re
import shutil
from html.parser import HTMLParser
from xml.etree import ElementTree

import attrs
import pytest
from spec_cli.main import run_command
from spec_commands.html_page import clean
from spec_compare.figures import outcome
from spec_compare.records.reading import read_results
from spec_compare.report import figures, page, svg
from spec_compare.report.reported_texts import Span, merge_spans, reported_text, texts

from tests.compare.test_compare import N, begin, compare, folder, words  # noqa: F401

pytest.importorskip("matplotlib")
HOSTILE = '</style><script>alert(1)</script><img src="http://example.org/x" onerror=alert(2)>$x$ & \u202e \x00'


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """A folder with the results of a small comparison with hostile names and their report, made once."""
    directory = tmp_path_factory.mktemp("measured")
    prompts = [
        {"id": "a", "family": "first", "prompt": "HELLO"},
        {"id": HOSTILE, "family": "second", "prompt": "MORE WORDS"},
        {"id": "c", "family": HOSTILE, "prompt": "A B C"},
    ]
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, directory)
        (directory / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
        assert (
            run_command(words("--method", "repeat", "--method", "mute", "--out", "out", "--report", "report.html")) == 0
        )
    return directory


@pytest.fixture
def result(comparison_folder, folder):  # noqa: F811
    """The result of that comparison, as its directory has it."""
    shutil.copytree(comparison_folder, folder, dirs_exist_ok=True)
    return outcome.recompute_outcome(read_results(folder / "out"))


class Outline(HTMLParser):
    """Tags and their attributes; every tag is closed where it must be."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(markup)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def drawings(result) -> list[str]:
    """The drawings of all figures."""
    return [part.svg for figure in figures.figures(result) for part in figure.parts]


def test_the_report_has_the_table_the_figures_and_every_text(result, folder):  # noqa: F811
    outline = Outline((folder / "report.html").read_text("utf-8"))
    words = "".join(outline.words)

    for word in (
        "repeat",
        "speedup",
        "of bound",
        "All families, 3 prompts",
        "Conditions",
        "what its acceptance allows",
    ):
        assert word in words
    assert [a["id"] for tag, a in outline.tags if tag == "figure"] == [
        "speedup", "acceptance", "lengths", "cost", "split", "efficiency",
    ]  # fmt: skip
    for record in (r for lap in result.laps for r in lap.records):
        assert clean(record.text) in words, "merged spans read as the text"


def test_nothing_of_a_prompt_becomes_markup(result):
    laps = [
        attrs.evolve(
            lap,
            records=[
                attrs.evolve(r, pieces=[HOSTILE] * len(r.tokens), text=HOSTILE, finish=HOSTILE) for r in lap.records
            ],
        )
        for lap in result.laps
    ]
    facts = [attrs.evolve(c, name=HOSTILE if c.name == "mute" else c.name) for c in result.header.contenders]
    laps = [attrs.evolve(lap, contender=HOSTILE if lap.contender == "mute" else lap.contender) for lap in laps]
    header = attrs.evolve(result.header, command=[HOSTILE], host=HOSTILE, contenders=facts)
    rows = [attrs.evolve(r, contender=HOSTILE if r.contender == "mute" else r.contender) for r in result.rows]
    outline = Outline(page.page(attrs.evolve(result, laps=laps, header=header, rows=rows)))

    tags = {tag for tag, _ in outline.tags}
    assert not tags & {"script", "img", "iframe", "object", "link"}
    assert not [a for _, attributes in outline.tags for a in attributes if a.startswith("on")]
    assert "<script>alert(1)</script>" in "".join(outline.words)


def test_the_page_asks_for_nothing(result, folder):  # noqa: F811
    markup = (folder / "report.html").read_text("utf-8")
    outline = Outline(markup)
    places = [
        a[name] for _, a in outline.tags for name in ("src", "href", "xlink:href", "data", "action") if a.get(name)
    ]

    assert places and all(place.startswith("#") for place in places)
    assert not re.search(r"url\((?!#)|@import", markup)
    (policy,) = [a["content"] for tag, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_ids_are_unique_and_every_reference_leads_to_one(result, folder):  # noqa: F811
    outline = Outline((folder / "report.html").read_text("utf-8"))
    ids = [a["id"] for _, a in outline.tags if "id" in a]
    uses = {a[n][1:] for _, a in outline.tags for n in ("href", "xlink:href") if a.get(n)}
    uses |= {
        result
        for _, a in outline.tags
        for value in a.values()
        for result in re.findall(r"url\(#([^)]+)\)", value or "")
    }

    assert len(set(ids)) == len(ids)
    assert uses <= set(ids)


def test_figures_have_no_colour_of_their_own(result):
    """Every colour is a variable of the style sheet, which differs between light and dark."""
    for figure in figures.figures(result):
        for part in figure.parts:
            ElementTree.fromstring(part.svg)
            assert set(re.findall(r"#[0-9a-fA-F]{6}\b", part.svg)) == set()
            assert "var(--ink)" in part.svg
        assert all(key.color.startswith("var(--") for key in figure.legend)
        assert figure.cells and {len(row) for row in figure.cells} == {len(figure.heads)}


def test_a_users_own_style_of_matplotlib_does_not_matter(result):
    import matplotlib

    before = drawings(result)
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 30, "svg.fonttype": "path"}):
        assert drawings(result) == before


def test_a_contender_without_speed_has_no_point(result):
    rows = [attrs.evolve(r, speedup=None, roof_fraction=None) for r in result.rows]
    names = [figure.name for figure in figures.figures(attrs.evolve(result, rows=rows, costs={}))]

    assert names == ["acceptance", "lengths", "split"]


def test_tokens_have_the_source_that_proposed_them(result):
    """Joined spans are the text; drafted spans are as long as the accepted tokens."""
    records = [r for lap in result.laps for r in lap.records if r.contender == "repeat"]
    for record in records:
        spans = reported_text(record).spans
        assert "".join(s.text for s in spans) == clean("".join(record.pieces))
        drafted = sum(len(s.text) for s in spans if s.source == "repeat")
        assert drafted == sum(record.steps.accepted), "one character per token"
        assert sum(s.rejected for s in spans) == reported_text(record).rejections


def test_spans_of_one_source_are_joined_up_to_a_rejection():
    spans = [Span("a", None), Span("b", "x"), Span("c", "x"), Span("d", None, True), Span("e", None)]

    assert list(merge_spans(spans)) == [Span("a", None), Span("bc", "x"), Span("de", None, True)]


def test_without_a_trace_the_texts_are_shown_plainly(compare, folder):  # noqa: F811
    compare("--method", "repeat", "--out", "out")
    from spec_cli.main import run_command

    assert run_command(["compare", "report", "out", "late.html"]) == 0
    words = "".join(Outline((folder / "late.html").read_text("utf-8")).words)
    assert "Tokens are coloured by who proposed them if" in words
    assert all(clean(r.text) in words for lap in read_results(folder / "out").laps for r in lap.records)


def test_texts_beyond_the_limit_are_counted_family_by_family(result):
    shown, hidden = texts(result, tokens_max=2 * 3 * N)

    assert (len(shown), hidden) == (2, 1)
    assert shown[0].family != shown[1].family
    attrs_page = page.page(result)
    assert "more prompts are in" not in attrs_page


def test_differences_are_listed_with_position(compare, folder):  # noqa: F811
    code, _, _ = compare("--method", "liar", "--report", "report.html")

    assert code == 1
    assert "liar differs on a at output position 4" in (folder / "report.html").read_text("utf-8")


def test_without_matplotlib_the_report_is_refused_before_anything_is_measured(compare, monkeypatch):  # noqa: F811
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    code, _, err = compare("--method", "repeat", "--report", "report.html")

    assert code == 2
    assert "a report needs matplotlib" in err and "spec-core[report]" in err and "measured" not in err


def test_a_report_that_cannot_be_written_is_an_error(compare, folder):  # noqa: F811
    code, _, err = compare("--method", "mute", "--report", "absent/report.html")

    assert code == 2 and "absent" in err and "cannot be written" in err and "Traceback" not in err


def test_the_svg_is_the_same_every_time(result):
    assert drawings(result) == drawings(result)
    assert len({svg.series(i) for i in range(8)}) == 8
