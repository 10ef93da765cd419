"""Golden acceptance lengths: files of InferenceX's form, written and replayed, with rows of our own."""

from __future__ import annotations

import json
import sys

import pytest
from spec_compare.inputs.golden import GoldenCurve, read_golden

from spec_core.errors import UsageError
from tests.compare.test_compare import compare, folder, results, words  # noqa: F401

yaml = pytest.importorskip("yaml", reason="the extra [yaml] is not installed")
FILE = """\
# Source: rows of our own.
some-model:
  thinking_on:
    3: 2.52
    1: '1.4'
  thinking_off: {2: 3}
"""


@pytest.fixture
def golden(tmp_path):
    """Write a file of lengths; returns its path."""

    def write(text: str = FILE):
        (tmp_path / "golden.yaml").write_text(text)
        return tmp_path / "golden.yaml"

    return write


def test_a_file_has_a_length_per_thinking_mode_and_draft_length(golden):
    assert read_golden(golden(), "on") == GoldenCurve("some-model", {1: 1.4, 3: 2.52})
    assert list(read_golden(golden(), "on").lengths) == [1, 3], "by draft length"
    assert read_golden(golden(), "off") == GoldenCurve("some-model", {2: 3.0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not name one model"),
        ("{a: {}, b: {}}", "does not name one model"),
        ("a: []", "has no thinking modes"),
        ("a: {thinking_off: {1: 1.5}}", "has no thinking_on"),
        ("a: {thinking_on: {}}", "has no draft lengths"),
        ("a: {thinking_on: {zero: 1.5}}", "is not a draft length"),
        ("a: {thinking_on: {0: 1.5}}", "is not a draft length"),
        ("a: {thinking_on: {true: 1.5}}", "is not a draft length"),
        ("a: {thinking_on: {3: 4.1}}", "no acceptance length of drafts of 3 tokens"),
        ("a: {thinking_on: {3: 0.9}}", "no acceptance length"),
        ("a: {thinking_on: {3: .nan}}", "no acceptance length"),
        ("a: {thinking_on: {3: yes}}", "no acceptance length"),
        ("a: {thinking_on: {3: text}}", "no acceptance length"),
        ("a: [", "is not YAML"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_a_file_of_another_form_is_refused_by_name(golden, text, message):
    with pytest.raises(UsageError, match=message) as refused:
        read_golden(golden(text), "on")

    assert "golden.yaml" in str(refused.value) and refused.value.hint


def test_lengths_are_replayed_by_the_two_neighbours_of_each(compare, folder, golden):  # noqa: F811
    """Every step with a whole draft keeps ⌊L⌋ or ⌈L⌉ tokens; every row is labelled."""
    golden("m: {thinking_on: {1: 1.5, 3: 2.6}}")
    code, out, _ = compare(
        "--method", "repeat", "--rule", "synthetic", "--golden", "golden.yaml", "--no-bounds", "--out", "out", "--json"
    )
    lengths = {"draft_max=1 rule=synthetic:length=1.5": {0, 1}, "draft_max=3 rule=synthetic:length=2.6": {1, 2}}
    rows = {row["contender"]: row for row in json.loads(out)["rows"] if row["family"] == "all"}

    assert code == 0
    assert set(rows) == {"plain", *(f"repeat {name}" for name in lengths)}
    for name, allowed in lengths.items():
        whole = [
            accepted
            for r in results(folder)
            if r["contender"] == f"repeat {name}"
            for drafted, accepted, emitted in zip(
                *(r["steps"][k] for k in ("drafted", "accepted", "emitted")), strict=True
            )
            if drafted == max(r["steps"]["drafted"]) and emitted > accepted
        ]
        assert whole and set(whole) <= allowed
        assert rows[f"repeat {name}"]["label"].startswith("LOSSY: synthetic acceptance of length")


def test_lengths_without_a_rule_that_keeps_to_them_are_refused(compare, golden):  # noqa: F811
    golden()
    code, _, err = compare("--method", "repeat", "--golden", "golden.yaml")

    assert code == 2 and "needs a rule" in err and "--rule synthetic" in err


def test_lengths_are_written_by_model_and_method_and_read_back(compare, folder):  # noqa: F811
    from spec_cli.main import run_command

    compare("--method", "repeat", "--method", "mute", "--sweep", "draft_max=1,2", "--no-bounds", "--out", "out")
    assert run_command(["compare", "export", "out", "--golden", "golden", "--thinking", "off"]) == 0
    rows = {r["contender"]: r for r in json.loads((folder / "out/summary.json").read_text())["rows"]}
    (file,) = (folder / "golden").iterdir()
    curve = read_golden(file, "off")

    assert file.stem.endswith("_repeat"), "mute drafts nothing and has no length"
    assert curve.lengths == {k: round(rows[f"repeat draft_max={k}"]["mean_acceptance_length"], 2) for k in (1, 2)}
    text = file.read_text()
    assert "temperature: 0.0 | output_len: 14" in text and "prompts.jsonl (first 1, second 2)" in text
    assert (
        f"k=2: accepted={round(rows['repeat draft_max=2']['accepted_per_step'] * rows['repeat draft_max=2']['steps'])}"
        in text
    )


def test_two_temperatures_are_two_files(compare, folder):  # noqa: F811
    from spec_cli.main import run_command

    compare(
        "--method", "repeat", "--sweep", "draft_max=1,2", "--sweep", "temperature=0,0.9", "--no-bounds", "--out", "o"
    )
    assert run_command(["compare", "export", "o", "--golden", "golden"]) == 0

    assert {len(read_golden(file, "on").lengths) for file in (folder / "golden").iterdir()} == {2}
    assert len(list((folder / "golden").iterdir())) == 2


def test_a_synthetic_length_is_no_golden_one(compare, folder, capsys):  # noqa: F811
    from spec_cli.main import run_command

    compare("--method", "repeat", "--rule", "synthetic:length=2", "--no-bounds", "--out", "o")

    assert run_command(["compare", "export", "o", "--golden", "golden"]) == 2
    assert "no contender drafted with the target's own text" in capsys.readouterr().err


def test_without_pyyaml_the_extra_is_named(compare, golden, monkeypatch):  # noqa: F811
    golden()
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, _, err = compare("--method", "repeat", "--rule", "synthetic", "--golden", "golden.yaml")

    assert code == 2 and "pip install 'spec-core[yaml]'" in err


def rows_over_all(out: str) -> dict:
    return {row["contender"]: row for row in json.loads(out)["rows"] if row["family"] == "all"}


@pytest.mark.parametrize("method", ["ngram", "draft-model"])
def test_a_replay_makes_the_tokens_per_step_that_were_measured(method, tmp_path, capsys):
    """Also by a method that drafts in every step, of lengths of one that does not."""
    from spec_cli.main import run_command

    short = ["compare", "-m", "zoo:pico", "--limit", "1", "-n", "64", "--no-bounds", "--json"]
    assert run_command([*short, "--method", "ngram", "--sweep", "draft_max=2,4", "--out", str(tmp_path / "o")]) == 0
    measured = rows_over_all(capsys.readouterr().out)
    assert run_command(["compare", "export", str(tmp_path / "o"), "--golden", str(tmp_path / "g")]) == 0
    (file,) = (tmp_path / "g").iterdir()
    capsys.readouterr()
    replay = ["--method", method, "-o", "draft-model.p_min=0"][: 4 if method == "draft-model" else 2]
    assert run_command([*short, *replay, "--rule", "synthetic", "--golden", str(file)]) == 0
    replayed = rows_over_all(capsys.readouterr().out)

    curve = read_golden(file, "on")
    for k in (2, 4):
        row = measured[f"ngram draft_max={k}"]
        assert curve.lengths[k] == round(row["mean_acceptance_length"], 2)
        assert curve.over_all_steps[k] == round(row["tokens_per_step"], 2) < curve.lengths[k] - 0.2
        name = f"{method} draft_max={k} rule=synthetic:length={curve.over_all_steps[k]:g},all_steps=true"
        assert replayed[name]["tokens_per_step"] == pytest.approx(row["tokens_per_step"], rel=0.1)


def test_both_lengths_are_named_without_paths(compare, folder):  # noqa: F811
    from spec_cli.main import run_command

    compare("--method", "repeat", "--no-bounds", "--out", "out")
    assert run_command(["compare", "export", "out", "--golden", "golden"]) == 0
    (file,) = (folder / "golden").iterdir()
    text = file.read_text()

    assert "thinking_on = 1 + accepted / drafts, over steps with a draft" in text
    assert "thinking_on_over_all_steps = tokens / steps" in text
    assert str(folder) not in text and "; steps=" in text


def test_lengths_over_all_steps_of_another_form_are_refused(golden):
    with pytest.raises(UsageError, match="no acceptance length"):
        read_golden(golden("m: {thinking_on: {1: 1.5}, thinking_on_over_all_steps: {1: 9}}"), "on")


def test_all_steps_without_a_length_is_refused(compare):  # noqa: F811
    code, _, err = compare("--method", "repeat", "--rule", "synthetic:all_steps=true")

    assert code == 2 and "without a length" in err
