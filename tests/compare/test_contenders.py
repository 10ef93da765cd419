"""Contenders of a TOML file and of sweeps: their names, their settings, and the plain decoding of each."""

from __future__ import annotations

import json
import os

import pytest
from spec_cli.main import run_command
from spec_compare.figures.titles import places
from spec_compare.measuring.entries import swept_all
from spec_compare.records.reading import read_results

from tests.support.toy_plugins import install

N = 10


@pytest.fixture
def compare(monkeypatch, tmp_path, capsys):
    """Run the command on the toy target; returns exit code, contenders of the header if there is one, and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("SPEC_")]:
        monkeypatch.delenv(name)
    install(monkeypatch)
    (tmp_path / "p.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "prompt": t}) for i, t in (("a", "HO"), ("b", "A B")))
    )

    def call(*arguments: str, toml: str = "", model: str = "toy:dense"):
        (tmp_path / "c.toml").write_text(toml)
        more = ["--contenders", "c.toml"] if toml else []
        command = ["compare", "-m", model, "--prompts", "p.jsonl", "-n", str(N), "--no-bounds", "--out", "out", *more]
        code = run_command([*command, *arguments])
        output = capsys.readouterr()
        by_name = {c.name: c for c in read_results(tmp_path / "out").header.contenders} if code != 2 else {}
        return code, by_name, output.err

    return call


def test_a_sweep_of_a_method_s_setting_gives_a_contender_per_value(compare):
    code, by_name, _ = compare("--method", "repeat", "--method", "mute", "--sweep", "repeat.length=1,2,3")

    assert code == 0
    assert list(by_name) == ["plain", "repeat:length=1", "repeat:length=2", "repeat:length=3", "mute"]
    assert [by_name[f"repeat:length={n}"].settings["repeat.length"].value for n in (1, 2, 3)] == [1, 2, 3]
    assert by_name["repeat:length=2"].settings["repeat.length"].origin == "sweep"


def test_sweeps_are_combined_and_a_core_setting_concerns_all(compare):
    _, by_name, _ = compare("--method", "repeat", "--sweep", "repeat.length=1,2", "--sweep", "draft_max=2,4")

    assert list(by_name) == ["plain", *(f"repeat:length={n} draft_max={m}" for n in (1, 2) for m in (2, 4))]
    assert by_name["repeat:length=1 draft_max=4"].settings["draft_max"].value == 4
    assert by_name["plain"].settings["draft_max"].value == 16, "plain decoding keeps the command's settings"


def test_every_temperature_has_a_plain_decoding_of_its_own(compare, tmp_path):
    code, by_name, _ = compare("--method", "repeat", "--sweep", "temperature=0,0.9")
    records = [r for lap in read_results(tmp_path / "out").laps for r in lap.records]
    texts = {(r.contender, r.prompt): r.tokens for r in records}

    assert code == 0
    assert {name: c.baseline for name, c in by_name.items()} == {
        "plain": "plain",
        "plain temperature=0.9": "plain temperature=0.9",
        "repeat temperature=0": "plain",
        "repeat temperature=0.9": "plain temperature=0.9",
    }
    assert all(texts["repeat temperature=0.9", p] == texts["plain temperature=0.9", p] for p in "ab")
    assert any(texts["plain", p] != texts["plain temperature=0.9", p] for p in "ab")


def test_seeds_are_swept_too(compare, tmp_path):
    _, by_name, _ = compare("--method", "repeat", "--temperature", "0.9", "--sweep", "seed=1,2")
    seeds = {(r.contender, r.prompt): r.seed for lap in read_results(tmp_path / "out").laps for r in lap.records}

    assert list(by_name) == ["plain seed=1", "plain seed=2", "repeat seed=1", "repeat seed=2"]
    assert seeds["plain seed=1", "a"] == seeds["repeat seed=1", "a"] != seeds["repeat seed=2", "a"]


TOML = """
[[contender]]
methods = ["mute", "repeat"]

[[contender]]
name = "short"
methods = ["repeat"]
draft_max = 2
[contender.repeat]
length = 2

[[contender]]
methods = "repeat"
rule = "heedless"
sweep = { "repeat.back" = [1, 2] }

[[contender]]
name = "swept"
methods = ["repeat"]
[contender.sweep]
temperature = [0.5]
repeat.length = [1, 2]
"""


def test_a_file_describes_contenders_with_settings_of_their_own(compare):
    code, by_name, err = compare("--method", "mute", toml=TOML)

    assert code == 0, err
    assert list(by_name) == [
        "plain",
        "plain temperature=0.5",
        "mute",
        "mute + repeat",
        "short",
        "repeat:back=1 rule=heedless",
        "repeat:back=2 rule=heedless",
        "swept repeat.length=1 temperature=0.5",
        "swept repeat.length=2 temperature=0.5",
    ]
    short, lossy = by_name["short"], by_name["repeat:back=1 rule=heedless"]
    assert (short.settings["draft_max"].value, short.settings["repeat.length"].value) == (2, 2)
    assert short.settings["draft_max"].origin == short.settings["repeat.length"].origin == "contender"
    assert (lossy.rule, lossy.label, by_name["mute"].rule) == ("heedless", "LOSSY: cares not", None)


def test_a_contender_may_have_a_model_of_its_own(compare, tmp_path):
    """Loaded beside the command's, with a plain decoding of its own: a text is compared with that of its model."""
    toml = '[[contender]]\nmethods = ["repeat"]\n[[contender]]\nmethods = ["repeat"]\nmodel = "toy:hybrid"\n'
    code, by_name, _ = compare(toml=toml)
    header = read_results(tmp_path / "out").header

    assert code == 0
    assert [t.model for t in header.targets] == ["toy:dense", "toy:hybrid"]
    assert {name: (c.baseline, c.target) for name, c in by_name.items()} == {
        "plain": ("plain", 0),
        "plain model=toy:hybrid": ("plain model=toy:hybrid", 1),
        "repeat": ("plain", 0),
        "repeat model=toy:hybrid": ("plain model=toy:hybrid", 1),
    }


def test_quantisations_of_a_model_are_contenders(tmp_path, capsys):
    toml = '[[contender]]\nmethods = ["ngram"]\n[[contender]]\nmethods = ["ngram"]\nkernels = "reference"\n'
    (tmp_path / "c.toml").write_text(toml)
    command = ["compare", "-m", "zoo:pico", "--contenders", str(tmp_path / "c.toml"), "--threads", "1", "-n", "3"]
    code = run_command([*command, "--limit", "1", "--family", "edit", "--no-bounds", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]

    assert code == 0
    assert {r["contender"] for r in rows} == {"plain", "plain kernels=reference", "ngram", "ngram kernels=reference"}


def test_control_is_a_setting_of_a_contender(compare):
    """The methods' own settings beside a controller, and a sweep of the controller's setting."""
    toml = '[[contender]]\nmethods = ["repeat"]\ncontrol = "auto"\nsweep = { "auto.share" = [0.01, 0.05] }\n'
    code, by_name, _ = compare("--method", "repeat", toml=toml)

    assert code == 0
    assert list(by_name) == [
        "plain",
        "repeat",
        "repeat control=auto auto.share=0.01",
        "repeat control=auto auto.share=0.05",
    ]
    auto = by_name["repeat control=auto auto.share=0.05"]
    assert (auto.control, auto.settings["auto.share"].value, auto.settings["auto.share"].origin) == (
        "auto",
        0.05,
        "sweep",
    )
    assert by_name["repeat"].control == "fixed" and "auto" not in by_name["repeat"].plugins


def test_paths_of_a_file_are_relative_to_it(tmp_path):
    from spec_compare.measuring.entries import tables

    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "head.gguf").touch()
    (folder / "c.toml").write_text('[[contender]]\nmethods = ["draft-model=head.gguf"]\nmodel = "zoo:pico"\n')

    assert tables(folder / "c.toml") == [{"methods": [f"draft-model={folder}/head.gguf"], "model": "zoo:pico"}]


WRONG = {
    "not TOML": ("[[contender", "c.toml"),
    "another table": ("[x]\ny = 1", "'x' is not a [[contender]]"),
    "no table": ("contender = 3", "has no [[contender]]"),
    "empty": ("contender = []", "has no [[contender]]"),
    "unknown setting": ('[[contender]]\nmethods = ["repeat"]\ndraft_mix = 3', "unknown setting 'draft_mix'"),
    "a value that does not fit": (
        '[[contender]]\nmethods = ["repeat"]\ndraft_max = "x"',
        "draft_max = 'x' does not fit",
    ),
    "unknown method": ('[[contender]]\nmethods = ["nothing"]', "no method or control named 'nothing'"),
    "methods that are none": ("[[contender]]\nmethods = 3", "methods = 3 is not a list of names"),
    "a name that is none": ("[[contender]]\nname = 3", "the name 3 is not a text"),
    "one name twice": ('[[contender]]\nname = "x"\nmethods = ["repeat"]\n' * 2, "2 contenders are named 'x'"),
    "the name of plain": ('[[contender]]\nname = "plain"\nmethods = ["repeat"]', "2 contenders are named 'plain'"),
    "a sweep that is none": ('[[contender]]\nmethods = ["repeat"]\nsweep = 3', "sweep is not a table"),
    "values that are none": (
        '[[contender]]\nmethods = ["repeat"]\nsweep = {draft_max = 3}',
        "3 is not a list of values",
    ),
    "an unknown plugin": ('[[contender]]\nmethods = ["repeat"]\n[contender.nobody]\nx = 1', "no plugin 'nobody'"),
    "an unknown setting of a plugin": (
        '[[contender]]\nmethods = ["repeat"]\n[contender.repeat]\nx = 1',
        "repeat has no setting",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_wrong_is_one_message(compare, name):
    toml, message = WRONG[name]
    code, _, err = compare(toml=toml)

    assert code == 2
    assert message in err and "Traceback" not in err and "measured" not in err


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("repeat.length", "must be KEY=VALUE,VALUE"),
        ("repeat.length=", "must be KEY=VALUE,VALUE"),
        ("ngram.draft_max=4,8", "no contender uses 'ngram'"),
        ("draft_mix=4", "unknown setting 'draft_mix'"),
        ("draft_max=4,x", "draft_max = 'x' does not fit"),
        ("repeat.size=4", "repeat has no setting 'size'"),
    ],
)
def test_a_sweep_that_is_wrong_is_one_message(compare, sweep, message):
    code, _, err = compare("--method", "repeat", "--sweep", sweep)

    assert code == 2
    assert message in err and "Traceback" not in err


# contenders on several models


def test_a_contender_runs_on_every_target_beside_plain_decoding_there(compare, tmp_path):
    code, by_name, _ = compare("--method", "repeat", "--method", "mute", "--target", "toy:hybrid")
    laps = list(read_results(tmp_path / "out").laps)

    assert code == 0
    assert set(by_name) == {f"{name}{on}" for name in ("plain", "repeat", "mute") for on in ("", " model=toy:hybrid")}
    assert {r.contender: r.baseline for lap in laps for r in lap.records} == {
        name: "plain model=toy:hybrid" if "model" in name else "plain" for name in by_name
    }
    assert [by_name[name].settings["model"].origin for name in ("repeat", "repeat model=toy:hybrid")] == [
        "flag",
        "--target",
    ]


def test_plain_decoding_alone_can_be_compared_on_several_targets(compare):
    _, by_name, _ = compare("--target", "toy:hybrid")

    assert list(by_name) == ["plain", "plain model=toy:hybrid"]


def test_a_contender_whose_table_names_a_model_stays_on_it(compare):
    toml = '[[contender]]\nmethods = ["repeat"]\nmodel = "toy:hybrid"\n[[contender]]\nmethods = ["mute"]\n'
    _, by_name, _ = compare("--target", "toy:hybrid", toml=toml)

    assert set(by_name) == {
        "plain",
        "plain model=toy:hybrid",
        "repeat model=toy:hybrid",
        "mute",
        "mute model=toy:hybrid",
    }


def test_names_have_the_last_part_of_a_path_unless_two_are_equal():
    models = ["zoo:pico", "gguf:/a/m.gguf", "gguf:/b/m.gguf", "/c/other.gguf", "transformers:/a/m"]

    assert list(places(models).values()) == [
        "zoo:pico",
        "gguf:/a/m.gguf",
        "gguf:/b/m.gguf",
        "other.gguf",
        "transformers:m",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "toy:dense"), "the model toy:dense was passed 2 times"),
        (("--target", "toi:dense"), "toi:dense: unknown target scheme 'toi'"),
        (("--target", "toy:hybrid", "--method", "eagle3"), "on toy:dense: eagle3: no head is given"),
    ],
)
def test_a_target_that_cannot_be_used_is_one_message(compare, arguments, message):
    code, _, err = compare("--method", "repeat", *arguments)

    assert code == 2
    assert message in err and "Traceback" not in err


def test_no_sweep_leaves_contenders_as_they_are():
    assert swept_all([], {}) == []
