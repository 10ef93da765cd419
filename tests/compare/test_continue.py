"""A comparison that was interrupted continues: its tables are those of an undisturbed one, token for token."""

from __future__ import annotations

import json
import random
import resource
import shutil

import pytest
from spec_cli.main import run_command
from spec_compare.measuring import measure
from spec_compare.measuring.measure import schedule_laps
from spec_compare.records.reading import LAPS, read_results

from tests.support.kills import counts, killed_and_continued, texts
from tests.support.toy_plugins import settle

PROMPTS = [{"id": f"p{i}", "family": "fg"[i % 2], "prompt": "HELLO AND HELLO"[: 5 + i]} for i in range(4)]
TOML = """
[[contender]]
methods = ["suffix"]
[[contender]]
methods = ["recycling"]
[[contender]]
methods = ["repeat"]
rule = "rejection"
"""
"""Two methods with a memory from text to text, and a rule whose noise depends on the number of the request."""
COMMAND = [
    "compare", "-m", "toy:dense", "--prompts", "p.jsonl", "-n", "9", "--temperature", "0.9", "--contenders", "c.toml",
    "--repeats", "2", "--batch", "1", "--no-bounds", "--out", "out",
]  # fmt: skip


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """A folder with the prompts and contenders, and in ``whole`` the results of an undisturbed comparison."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, folder)
        (folder / "p.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
        (folder / "c.toml").write_text(TOML)
        assert run_command(COMMAND) == 0
    (folder / "out").rename(folder / "whole")
    return folder


@pytest.fixture
def folder(comparison_folder, monkeypatch, tmp_path):
    """A copy of that folder, in which the test works."""
    settle(monkeypatch, tmp_path)
    return shutil.copytree(comparison_folder, tmp_path, dirs_exist_ok=True)


def assert_undisturbed(folder) -> None:
    whole, continued = read_results(folder / "whole"), read_results(folder / "out")

    assert [lap.number for lap in continued.laps] == list(range(continued.header.laps)), "each lap once, in order"
    assert texts(continued) == texts(whole)
    assert counts(folder / "out") == counts(folder / "whole")


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.release)])
def test_a_comparison_killed_at_random_moments_gives_the_same_tables(folder, kills):
    """With SIGKILL."""
    lines = killed_and_continued(COMMAND, folder, kills=kills, rng=random.Random(7), pause=0.02)

    assert_undisturbed(folder)
    assert len(lines) == kills and lines[0] > 1 and lines == sorted(set(lines)) and lines[-1] < 33
    assert len(read_results(folder / "out").sessions) == kills


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.77, 0.999])
def test_a_file_cut_at_any_byte_is_continued(folder, share):
    """Wherever the last write ended: within the header, within a record, or after a line."""
    shutil.copytree(folder / "whole", folder / "out")
    (folder / "out" / "summary.json").unlink()
    whole = (folder / "whole" / LAPS).read_bytes()
    (folder / "out" / LAPS).write_bytes(whole[: int(len(whole) * share)])

    assert run_command(COMMAND) == 0
    assert_undisturbed(folder)


def test_laps_of_several_prompts_are_continued_as_a_whole(folder, capsys):
    command = [*COMMAND, "--batch", "2"]
    assert run_command(command) == 0
    shutil.rmtree(folder / "whole")
    (folder / "out").rename(folder / "whole")
    shutil.copytree(folder / "whole", folder / "out")
    lines = (folder / "whole" / LAPS).read_bytes().splitlines(keepends=True)
    (folder / "out" / LAPS).write_bytes(b"".join(lines[:8]))  # the fourth lap has one of two records
    capsys.readouterr()

    assert run_command(command) == 0
    assert "3 of 16 laps are recorded" in capsys.readouterr().err
    assert_undisturbed(folder)


def test_finished_laps_are_not_measured_again_without_need(folder, monkeypatch):
    """Plain decoding has no memory: none of its finished laps runs again. Methods run those of the same repeat."""
    shutil.copytree(folder / "whole", folder / "out")
    lines = (folder / "whole" / LAPS).read_bytes().splitlines(keepends=True)
    (folder / "out" / LAPS).write_bytes(b"".join(lines[: 1 + 26]))
    ran, real = [], measure.lap_of
    monkeypatch.setattr(measure, "lap_of", lambda *args: (ran.append(args[-1]), real(*args))[1])
    assert run_command(COMMAND) == 0

    slots = schedule_laps(["plain", "suffix", "recycling", "repeat rule=rejection"], 4, 2)
    left = {slot.contender for slot in slots[26:]}
    assert ran == [
        s for s in slots if s.repeat == 1 and s.contender in left and (s.number >= 26 or s.contender != "plain")
    ]
    assert_undisturbed(folder)


def test_a_finished_comparison_runs_nothing_and_shows_its_table(folder, monkeypatch, capsys):
    shutil.copytree(folder / "whole", folder / "out")
    before = (folder / "out" / LAPS).read_bytes()
    monkeypatch.setattr(measure, "lap_of", lambda *args: pytest.fail("a lap ran"))
    capsys.readouterr()

    assert run_command(COMMAND) == 0
    assert "recycling" in capsys.readouterr().out
    assert (folder / "out" / LAPS).read_bytes() == before
    assert_undisturbed(folder)


def test_an_interrupted_comparison_shows_what_all_contenders_finished(folder, capsys):
    lines = (folder / "whole" / LAPS).read_bytes().splitlines(keepends=True)
    (folder / "whole" / LAPS).write_bytes(b"".join(lines[: 1 + 6]))
    capsys.readouterr()

    assert run_command(["compare", "show", "whole", "--json"]) == 0
    output = capsys.readouterr()
    assert {row["prompts"] for row in json.loads(output.out)["rows"]} == {1}
    assert "whole: 6 of 32 laps are finished" in output.err


def test_another_set_of_contenders_is_refused_by_their_names(folder, capsys):
    shutil.copytree(folder / "whole", folder / "out")
    (folder / "c.toml").write_text(TOML.replace("recycling", "ngram"))
    capsys.readouterr()

    assert run_command(COMMAND) == 2
    err = capsys.readouterr().err
    assert "contender 'ngram' is new" in err and "contender 'recycling' is missing" in err
    assert "recycling: " not in err and "ngram: " not in err


def test_nothing_to_show_is_a_message(folder, capsys):
    lines = (folder / "whole" / LAPS).read_bytes().splitlines(keepends=True)
    (folder / "whole" / LAPS).write_bytes(lines[0])

    assert run_command(["compare", "show", "whole"]) == 2
    assert "no prompt that every contender finished" in capsys.readouterr().err


def test_a_full_disk_ends_with_a_message_and_keeps_finished_laps(folder, capsys):
    """The file may not grow further: the last record is written in part, and the next run continues before it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (folder / "whole" / LAPS).stat().st_size // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        code = run_command(COMMAND)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    err = capsys.readouterr().err
    kept = len(read_results(folder / "out").laps)

    assert code == 2
    assert "out cannot be written: File too large" in err and "Traceback" not in err
    assert 0 < kept < 32 and (folder / "out" / LAPS).stat().st_size == size
    assert run_command(COMMAND) == 0
    assert f"{kept} of 32 laps are recorded" in capsys.readouterr().err
    assert_undisturbed(folder)


DAMAGED = {
    "another file": (b"hello\n", "not valid"),
    "no header": (b'{"kind": "record"}\n', "line 1 is not a header"),
    "another version": (
        b'{"kind": "header", "format": "spec-core results", "version": "3.0"}\n',
        "format version '3.0'",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_other_files_of_that_name_are_not_touched(folder, capsys, name):
    content, message = DAMAGED[name]
    (folder / "out").mkdir()
    (folder / "out" / LAPS).write_bytes(content)

    assert run_command(COMMAND) == 2
    assert message in capsys.readouterr().err
    assert (folder / "out" / LAPS).read_bytes() == content


def test_a_summary_without_results_is_not_touched(folder, capsys):
    (folder / "out").mkdir()
    (folder / "out" / "summary.json").write_text("{}")

    assert run_command(COMMAND) == 2
    assert "out has summary.json without results.jsonl" in capsys.readouterr().err


def test_a_continued_comparison_has_the_date_of_its_beginning_and_of_every_continuation(folder, monkeypatch):
    """Its outcome, from which a report is made, and that of its records are of the same dates."""
    from spec_compare.measuring import comparison

    shutil.copytree(folder / "whole", folder / "out")
    (folder / "out" / "summary.json").unlink()
    lines = (folder / "out" / LAPS).read_bytes().splitlines(keepends=True)
    header = json.loads(lines[0]) | {"date": "2031-02-03T04:05:06+00:00"}
    (folder / "out" / LAPS).write_bytes(json.dumps(header).encode() + b"\n" + b"".join(lines[1:9]))
    outcomes, real = [], comparison.run_experiment
    monkeypatch.setattr(comparison, "run_experiment", lambda *a, **k: outcomes.append(real(*a, **k)) or outcomes[-1])
    assert run_command(COMMAND) == 0
    (result,) = outcomes

    assert result.header.date == read_results(folder / "out").header.date == "2031-02-03T04:05:06+00:00"
    assert result.sessions == read_results(folder / "out").sessions and len(result.sessions) == 1
