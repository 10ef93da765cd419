"""The tables of a report: main columns that fit a page, methods against each other, and the beginnings of prompts."""

from __future__ import annotations

import re

import attrs
import pytest
from spec_cli.main import run_command
from spec_commands.prompts import Prompt
from spec_compare.figures import outcome
from spec_compare.figures.pairs import Pair
from spec_compare.inputs.conversation import Conversation
from spec_compare.records.reading import read_results
from spec_compare.report import figures, page
from spec_compare.report.hatching import HATCHES, hatch_segments
from spec_compare.report.pair_matrix import matrices
from spec_compare.report.reported_texts import BEGINNING, beginning
from spec_compare.report.sections import MAIN, sections

from tests.compare.test_compare import begin, words
from tests.compare.test_report import HOSTILE, Outline

pytest.importorskip("matplotlib", reason="needs the extra report")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Two methods and plain decoding."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        assert run_command(words("--method", "repeat", "--method", "mute", "--out", "out")) == 0
    return outcome.recompute_outcome(read_results(folder / "out"))


def with_pairs(result, *ends):
    """The outcome with one pair of this interval."""
    return attrs.evolve(result, pairs=[Pair("repeat", "mute", 6, 1.5, *ends)])


def test_the_main_table_has_few_columns_and_the_complete_one_all(result):
    whole, *families = sections(result)

    assert {column.title for column in whole.main.columns} <= {*MAIN, "90% CI"}
    assert {column.id for column in whole.main.columns} < {column.id for column in whole.complete.columns}
    assert whole.complete.scrolls and not whole.main.scrolls
    assert len(families) == 2 and all(one.main.groups and one.complete.groups for one in families)


def test_rows_have_one_line_each(result):
    """A cell that is folded would make its row higher than others."""
    label = "LOSSY: a rule with a long description of what it does to the text"
    long_rows = [attrs.evolve(row, label=label, conditional=[0.5] * 4, tested_per_pos=[7] * 4) for row in result.rows]
    markup = page.page(attrs.evolve(result, rows=long_rows))

    assert 'class="words"' not in markup and label in markup


def test_a_worst_family_with_a_long_name_is_cut(result):
    long_rows = [attrs.evolve(row, worst_family="f" * 80, worst_speedup=0.5) for row in result.rows]
    whole = sections(attrs.evolve(result, rows=long_rows))[0]

    assert max(len(cell) for group in whole.main.groups for line in group.lines for cell in line.cells) < 40


def test_the_matrix_has_every_pair_from_both_sides(result):
    (matrix,) = matrices(with_pairs(result, 1.2, 1.8))
    cells = {
        (line.whole, whole): cell
        for line in matrix.lines
        for (_, whole), cell in zip(matrix.heads, line.cells, strict=True)
    }

    assert cells["repeat", "repeat"] is None
    assert (cells["repeat", "mute"].ratio, cells["repeat", "mute"].interval) == ("1.50×", "1.20-1.80")
    assert (cells["mute", "repeat"].ratio, cells["mute", "repeat"].interval) == ("0.67×", "0.56-0.83")


@pytest.mark.parametrize(
    ("ends", "bold", "phrase"),
    [((1.2, 1.8), 2, "with its 90% CI"), ((0.9, 1.8), 0, "with its 90% CI"), ((None, None), 0, "intervals need five")],
)
def test_only_a_clear_ratio_is_bold(result, ends, bold, phrase):
    markup = page.page(with_pairs(result, *ends))
    section = markup[markup.index('<h2 id="pairs">') : markup.index('<h2 id="figures">')]

    assert section.count("<b>") == bold and phrase in section


def test_a_single_method_has_no_matrix_and_no_link_to_it(result):
    markup = page.page(attrs.evolve(result, pairs=[]))

    assert "against each other" not in markup


def test_a_matrix_of_many_methods_is_folded_and_its_names_are_cut(result):
    """Forty contenders with long hostile names."""
    plain, first = result.header.contenders[:2]
    names = [f"{i} {HOSTILE}" for i in range(40)]
    header = attrs.evolve(result.header, contenders=[plain, *(attrs.evolve(first, name=name) for name in names)])
    pairs = [Pair(names[0], name, 6, 1.5, 1.2, 1.8) for name in names[1:]]
    markup = page.page(
        attrs.evolve(result, header=header, pairs=pairs, rows=[r for r in result.rows if r.contender == "plain"])
    )
    section = markup[markup.index('<h2 id="pairs">') : markup.index('<h2 id="figures">')]

    assert '<details class="printed"><summary>All families, 40 methods</summary>' in section
    assert section.count('scope="col"') == 41 and section.count('scope="row"') == 40
    assert "script" not in {tag for tag, _ in Outline(markup).tags}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("two\nlines\t and  spaces", "two lines and spaces"),
        ("w" * 200, "w" * (BEGINNING - 1) + "…"),
        ([1, 2, 3], "tokens 1, 2, 3"),
        ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}], "Why?"),
        ([{"role": "assistant", "content": "Hello"}], "Hello"),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}], "What is it?"),
        ("\x1b[2J\u202ex", "\ufffd[2J\ufffdx"),
    ],
)
def test_a_prompt_begins_with_its_first_words(content, expected):
    assert beginning(Prompt("id", "f", content)).strip() == expected


def test_a_conversation_begins_with_its_first_turn():
    first = [{"role": "user", "content": "First."}]

    assert beginning(Conversation("id", "f", first, ("First.", "Second."))) == "First."


def test_beginnings_are_listed_if_prompts_were_stored(result):
    listed, bare = page.page(result), page.page(attrs.evolve(result, prompts=[]))

    assert '<summary>second: c<span class="beginning"> A B C</span></summary>' in listed
    assert "<summary>second: c</summary>" in bare


def test_a_legend_is_not_repeated_in_drawings(result):
    (split,) = [figure for figure in figures.figures(result) if figure.name == "split"]

    assert [key.name for key in split.legend] == split.heads[1:]
    assert not any(f">{key.name}<" in part.svg for key in split.legend for part in split.parts)
    assert all(key.strokes or not key.hatch for key in split.legend)


def test_no_drawing_has_a_pattern(result):
    """A browser prints it as a picture."""
    assert not any("<pattern" in part.svg for figure in figures.figures(result) for part in figure.parts)


@pytest.mark.parametrize("hatch", HATCHES)
@pytest.mark.parametrize(("left", "width"), [(0.0, 1.0), (0.3, 0.011), (0.5, 0.0)])
def test_strokes_stay_inside_their_bar(hatch, left, width):
    segments = list(hatch_segments(hatch, left, width, 3, 0.4))

    assert bool(segments) == bool(hatch and width > 0.02) or width == 0.011
    for x, y in (end for segment in segments for end in segment):
        assert left - 1e-9 <= x <= left + width + 1e-9 and 2.8 - 1e-9 <= y <= 3.2 + 1e-9


def test_results_without_texts_have_a_report(result):
    laps = [
        attrs.evolve(lap, records=[attrs.evolve(r, pieces=None, trace=None, text="") for r in lap.records])
        for lap in result.laps
    ]
    markup = page.page(attrs.evolve(result, laps=laps))

    assert re.search(r"Tokens are coloured by who proposed them if", markup)
