"""Figures and tables of the benchmarks: marked tables, parts of a step, ratios to a peer; times are not asserted."""

from __future__ import annotations

import re

import attrs
import pytest

from benchmarks import comparison, end_to_end
from benchmarks.end_to_end import ALL, PEER, PLAIN, Bench, Lap, Table
from benchmarks.support import results, tables
from spec_core import Run, Sampling
from spec_core.testing import QuickTarget

SCRIPT = re.compile(r"\b(?:benchmarks|tests/campaigns)/[\w/]+\.py")

# marked tables


def test_a_table_is_written_between_its_markers_and_others_stay(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: one -->\nold\n<!-- /table -->\nb\n<!-- table: two -->\nold\n<!-- /table -->\n")

    tables.write(page, {"one": ["new", "lines"]}.get)

    assert page.read_text() == (
        "a\n<!-- table: one -->\nnew\nlines\n<!-- /table -->\nb\n<!-- table: two -->\nold\n<!-- /table -->\n"
    )


def test_every_table_that_a_benchmark_makes_has_a_place_in_the_results():
    names = {
        file: {table["name"] for table in results.read(file)["tables"]} for file in ("methods", "steps", "end-to-end")
    }

    assert names["methods"] == names["steps"] == set(comparison.TABLES)
    assert names["end-to-end"] == {Table(m, t, 1, 1).name for m in end_to_end.METHODS for t in end_to_end.TEMPERATURES}


@pytest.mark.parametrize("file", sorted(file.stem for file in results.RESULTS.glob("*.json")))
def test_a_result_has_a_cell_for_every_column_and_says_where_it_was_measured(file):
    """Unknown circumstances are null, not left out."""
    body = results.read(file)

    for table in body["tables"]:
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}
        assert {"machine", "date", "commit"} <= table.keys()
        assert table["machine"] is None or {"processor", "cores", "instruction_set"} <= table["machine"].keys()
    assert results.dump(body) == (results.RESULTS / f"{file}.json").read_text("utf-8")


def test_a_measured_table_replaces_the_one_of_its_name_and_records_the_machine(tmp_path, monkeypatch):
    """Tables of other names keep their rows, machine and date."""
    old = {"machine": None, "date": None, "commit": None, "columns": ["x"], "rows": [["old"]]}
    file = tmp_path / "some.json"
    file.write_text(results.dump({"title": "t", "notes": [], "tables": [{"name": name, **old} for name in "ab"]}))
    monkeypatch.setattr(results, "RESULTS", tmp_path)

    results.save("some", {"a": ["| x |", "| --- |", "| new |", "", "a note"]}.get)

    fresh, kept = results.read("some")["tables"]
    assert (fresh["rows"], fresh["notes"], fresh["columns"]) == ([["new"]], ["a note"], ["x"])
    assert fresh["machine"]["processor"] and fresh["date"]
    assert kept == {"name": "b", **old}


def test_every_script_that_a_page_names_exists():
    pages = [tables.ROOT / "README.md", tables.ROOT / "CONTRIBUTING.md", *(tables.ROOT / "docs").rglob("*.md")]
    named = {path for page in pages for path in SCRIPT.findall(page.read_text("utf-8"))}

    assert {"benchmarks/comparison.py", "tests/campaigns/lossless.py"} <= named
    assert [path for path in sorted(named) if not (tables.ROOT / path).exists()] == []


def test_every_script_is_named_by_a_page_or_used_by_a_test():
    """What measured once, for a decision, keeps its figures without its script."""
    pages = "".join(page.read_text("utf-8") for page in (tables.ROOT / "docs").rglob("*.md"))
    tests = "".join(test.read_text("utf-8") for test in (tables.ROOT / "tests").rglob("*.py"))
    scripts = [file.stem for file in sorted((tables.ROOT / "benchmarks").glob("*.py"))]

    used = {*re.findall(r"benchmarks[/.](\w+)", pages), *re.findall(r"from benchmarks\.(\w+) import", tests)}
    used |= {name for names in re.findall(r"from benchmarks import (.*)", tests) for name in names.split(", ")}

    assert [name for name in scripts if name not in used] == []


# where a step's time goes


def summary_row(contender: str, rate: float, split: dict[str, float]) -> dict:
    return {"contender": contender, "family": "all", "tokens_per_step": 2.0, "rate": rate, "split": split}


def test_the_parts_of_a_step_are_the_whole_step():
    """Two tokens a step at 1,000 tokens/s are 2,000 µs; time outside the other parts is the core's."""
    split = {"verify": 0.5, "accept": 0.1, "draft": 0.15, "process": 0.05, "rollback": 0.05, "host": 0.15}

    step_parts = comparison.parts(summary_row("ngram", 1000, split))

    assert step_parts == pytest.approx(
        {"step": 2000, "forward": 1000, "choice": 200, "method": 400, "rollback": 100, "core": 300}
    )


def test_a_method_is_held_against_the_forward_of_a_plain_step():
    plain = summary_row("plain", 1000, {"verify": 0.5, "host": 0.5})
    ngram = summary_row("ngram", 2000, {"verify": 0.8, "draft": 0.1, "host": 0.1})

    lines = comparison.steps([plain, ngram])

    assert lines[2:] == [
        "| plain | 2.00 | 2000 | 1000 | 0 | 0 | 0 | 1000 |  |",
        "| `ngram` | 2.00 | 1000 | 800 | 0 | 100 | 0 | 100 | 10% |",
    ]


# end to end


def laps(side: str, decode: float, prefill: float = 1.0, prompt: str = "a", family: str = "f", **more) -> Lap:
    return Lap(side, prompt, family, 20, 11, prefill, decode, **{"equal": True, **more})


def figures(*all_laps: Lap) -> dict[tuple[str, str], end_to_end.Figure]:
    return {(f.family, f.side): f for f in end_to_end.figures(all_laps)}


def test_decoding_and_prefill_have_ratios_of_their_own():
    """Ten tokens after the first took 8 seconds there, 4 and 2 here; twenty of the prompt took 2 there and 1 here."""
    by_label = figures(laps(PEER, 8, prefill=2), laps(PLAIN, 4), laps("ngram", 2))

    ngram = by_label["f", "ngram"]
    assert (ngram.rate, ngram.ratio, ngram.of_plain) == (5, 4, 2)
    assert (ngram.prefill, ngram.of_prefill) == (20, 2)
    assert ngram.whole == pytest.approx(10 / 3)
    assert (by_label["f", PEER].ratio, by_label["f", PLAIN].of_plain) == (1, 1)


def test_laps_of_a_prompt_count_by_their_median():
    disturbed = [laps(side, seconds) for seconds in (1, 1, 50) for side in (PEER, PLAIN)]

    assert figures(*disturbed)[ALL, PLAIN].rate == 10


def test_families_are_pooled_by_tokens_and_seconds():
    """2 and 8 seconds there, 1 and 1 here: ten seconds against two."""
    by_label = figures(
        laps(PEER, 2), laps(PLAIN, 1), laps(PEER, 8, prompt="b", family="g"), laps(PLAIN, 1, prompt="b", family="g")
    )

    assert (by_label["f", PLAIN].ratio, by_label["g", PLAIN].ratio, by_label[ALL, PLAIN].ratio) == (2, 8, 5)
    assert by_label[ALL, PLAIN].middle == 5, "of 2 and 8"


def test_a_side_with_one_other_text_has_no_figure_at_all():
    by_label = end_to_end.figures([laps(PEER, 8), laps(PLAIN, 4), laps("ngram", 2, equal=False)])

    assert [end_to_end.line(f).count("text differs") for f in by_label] == [0, 0, 1, 0, 0, 1]


@attrs.define(eq=False)
class Echo:
    """A peer that answers at once."""

    about: str = "echo"
    asked: list = attrs.field(factory=list)

    def generate(self, prompt, count, temperature, seed):
        self.asked.append((len(prompt), count, temperature))
        return {"tokens": [0] * count, "prefill": 1.0, "decode": 1.0}


@pytest.fixture
def bench(monkeypatch):
    """Both sides with a toy target, and a method that never drafts."""
    target = QuickTarget()
    monkeypatch.setitem(end_to_end.METHODS, "toy", ["ngram"])
    prompts = [end_to_end.Prompt(str(i), "f", [1 + i, 2, 3]) for i in range(3)]
    monkeypatch.setattr(end_to_end, "prompts", lambda model: prompts)
    return Bench("toy", target, Echo())


def test_all_sides_run_on_every_prompt_and_the_peer_makes_as_many_tokens(bench):
    unit = bench.unit(Table("toy", 0.8, 2, 1), "f", 0)

    saved_laps = [Lap(**one) for one in unit["laps"]]
    assert [lap.side for lap in saved_laps] == [PEER, PLAIN, "ngram", PLAIN, "ngram", PEER], "who is first rotates"
    assert {lap.prompt for lap in saved_laps} == {"0", "1"}, "the number of prompts asked for"
    assert all(lap.equal for lap in saved_laps)
    assert bench.peer.asked == [(3, lap.tokens, 0.8) for lap in saved_laps if lap.side == PEER]
    assert {(lap.prompt, lap.tokens) for lap in saved_laps if lap.side == PLAIN} == {
        (lap.prompt, lap.tokens) for lap in saved_laps if lap.side == PEER
    }


def test_a_text_that_is_not_plains_is_seen(bench, monkeypatch):
    plain = Bench.run

    def other(self, name):
        return plain(self, name) if name == PLAIN else Run(self.target, ["ngram"], rule="typical", reuse=False)

    monkeypatch.setattr(Bench, "run", other)
    terms = end_to_end.RequestSettings(24, Sampling(temperature=1.5))
    asked = end_to_end.prompts("toy")

    sides = {lap.side for lap in bench.laps(asked, terms, 0) if not lap.equal}

    assert sides == {"ngram"}


def test_what_was_measured_is_not_measured_again(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(end_to_end, "KEPT", tmp_path)
    table = Table("toy", 0.0, 1, 2)

    assert table.missing() == [(0, "f"), (1, "f")]
    assert end_to_end.table_lines(table) is None, "not complete"
    for repeat in (0, 1):
        end_to_end.keep(table.file("f", repeat), bench.unit(table, "f", repeat))

    assert table.missing() == []
    lines = end_to_end.table_lines(table)
    assert [line.split(" | ")[:2] for line in lines[2:5]] == [["| f", PEER], ["| f", PLAIN], ["| f", "`ngram`"]]
    assert "echo" in lines[-1], "the circumstances stand below"
