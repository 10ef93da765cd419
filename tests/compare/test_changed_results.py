"""Results that were changed: commands that read them refuse them or print, and never end with a traceback."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from spec_cli.main import run_command
from spec_commands.printing import COMMANDS, escape_controls, json_safe
from spec_compare.records.reading import LAPS

from tests.support.changed_results import READERS, change_lines, faults, write
from tests.support.toy_plugins import settle

PROMPTS = [{"id": i, "family": f, "prompt": p} for i, f, p in (("a", "u", "HELLO"), ("b", "v", "MORE WORDS"))]
TRIALS = 12
COMMAND = (
    "compare -m toy:dense --prompts p.jsonl -n 8 --no-bounds --method repeat --method cautious --control auto --trace "
    "--out whole"
)


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """A folder with the results of a small comparison in the folder ``whole``, made once."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, folder)
        (folder / "p.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
        assert run_command(COMMAND.split()) == 0
    return folder


@pytest.fixture
def lines(comparison_folder, monkeypatch, tmp_path):
    """The lines of those results, which are in the folder ``whole``."""
    settle(monkeypatch, tmp_path)
    shutil.copytree(comparison_folder, tmp_path, dirs_exist_ok=True)
    return [json.loads(line) for line in (tmp_path / "whole" / LAPS).read_text("utf-8").splitlines()]


def test_changes_at_random_end_no_command_with_a_traceback(lines):
    """``tests/campaigns/results.py`` does the same 1,536 times."""
    rng, unnoticed = random.Random(5), []
    for _ in range(TRIALS):
        new, changes = change_lines(lines, rng)
        write(new, Path("changed"))
        unnoticed += [f"{changes}: {fault}" for fault in faults(Path("changed"), Path("whole"))]

    assert not unnoticed, "\n".join(unnoticed)


def contender(lines, i: int) -> dict:
    return lines[0]["contenders"][i]


CHANGES = {
    "half a surrogate": lambda lines: lines[0]["settings"]["draft_max"].update(origin="\ud800"),
    "half a surrogate as a name": lambda lines: contender(lines, 1)["settings"].update(
        {"\udc00": {"value": 1, "origin": "x"}}
    ),
    "half a surrogate in a text": lambda lines: lines[1].update(text="\ud800"),
    "a number beyond 64 bits": lambda lines: lines[0].update(batch=2**63),
    "a setting that is a text and a number": lambda lines: [
        c["settings"].update({"kernels": {"value": v, "origin": "sweep"}})
        for c, v in zip(lines[0]["contenders"], ("auto", 3, [1, "x"]), strict=True)
    ],
    "a contender without a baseline": lambda lines: contender(lines, 1).update(baseline="nobody"),
    "a contender of another model": lambda lines: contender(lines, 1).update(target=7),
    "no model": lambda lines: lines[0].update(targets=[]),
    "no contender": lambda lines: lines[0].update(contenders=[]),
    "two contenders of one name": lambda lines: contender(lines, 2).update(name=contender(lines, 1)["name"]),
    "a record of nobody": lambda lines: lines[2].update(contender="nobody"),
    "a record with another baseline": lambda lines: lines[2].update(baseline="repeat"),
    "a date that is none": lambda lines: lines[0].update(date="yesterday"),
    "no processor": lambda lines: lines[0].update(processors=0),
    "an interval that is none": lambda lines: lines[0].update(interval=2.0),
    "no resamples": lambda lines: lines[0].update(resamples=0),
    "negative times": lambda lines: [line.update(decode_seconds=-1.0) for line in lines[1:]],
    "no time": lambda lines: [
        line.update(decode_seconds=0.0, whole_seconds=0.0, cpu_seconds=0.0) for line in lines[1:]
    ],
    "no tokens": lambda lines: [line.update(tokens=[]) for line in lines[1:]],
    "a prompt with a number of many digits": lambda lines: [
        (line.update(prompt="9" * 5000), line["lap"].update(prompts=["9" * 5000])) for line in lines[1:]
    ],
}  # fmt: skip


@pytest.mark.repeats(10)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_parts_that_do_not_agree_are_refused_or_shown(lines, change):
    change(lines)
    write(lines, Path("changed"))

    assert faults(Path("changed"), Path("whole")) == []


def test_characters_that_command_a_terminal_are_shown(lines, capsys):
    """Of names, families, models and prompts, in every table, note and error, and in JSON."""
    evil = "a\x1b]0;owned\x07\x9b31m\u202eb"
    for line in lines[1:]:
        line["family"], line["prompt"] = line["family"] + evil, line["prompt"] + evil
        line["lap"]["prompts"] = [line["prompt"]]
    for facts in lines[0]["contenders"]:
        for line in lines[1:]:
            line.update({k: v + evil for k in ("contender", "baseline") if (v := line[k]) == facts["name"]})
        facts["name"], facts["baseline"] = facts["name"] + evil, facts["baseline"] + evil
    lines[0]["targets"][0]["name"] += evil
    lines[0]["host"] += evil
    write(lines, Path("changed"))
    capsys.readouterr()

    assert faults(Path("changed"), Path("whole")) == []
    assert run_command(["compare", "show", "changed"]) == 0
    output = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07\\x9b31m\\u202e" in output and not COMMANDS.search(output)


def test_escapes_stand_for_the_same_value():
    text = "".join(map(chr, [*range(0x200), 0x202E, 0x2028, 0x1F600]))

    assert json.loads(json_safe(json.dumps({"a": text}, ensure_ascii=False))) == {"a": text}
    assert not COMMANDS.search(escape_controls(text)) and escape_controls("tab\t, line\n") == "tab\t, line\n"


def test_every_command_that_reads_results_is_among_those_tried():
    from spec_compare.command import compare

    assert {command for _, command, *_ in READERS if command != "DIR"} == set(compare.commands) - {"check"}
