"""A bundle that is run again: equal contenders, settings and prompts, in another folder; what differs is named."""

from __future__ import annotations

import json
import shutil
import zipfile

import pytest
from spec_cli.main import run_command
from spec_compare.records.reading import read_results

from tests.compare.test_compare import begin, words
from tests.support.toy_plugins import settle

TOML = """
[[contender]]
methods = ["repeat"]
sweep = { "repeat.length" = [1, 3], "temperature" = [0, 0.9] }
[[contender]]
name = "by rule"
methods = ["repeat"]
rule = "synthetic"
[contender.synthetic]
rates = [0.5]
"""


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """A folder with a comparison and its bundles, one without prompts."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        (folder / "c.toml").write_text(TOML)
        options = ["--method", "mute", "--contenders", "c.toml", "--oracle", "2", "--limit", "1", "--repeats", "2"]
        assert run_command(words(*options, "--seed", "3", "--no-bounds", "--out", "out")) == 0
        assert run_command(["compare", "bundle", "out", "b.zip", "--no-report"]) == 0
        assert run_command(["compare", "bundle", "out", "bare.zip", "--no-report", "--no-prompts"]) == 0
    return folder


@pytest.fixture
def elsewhere(comparison_folder, monkeypatch, tmp_path):
    """Another folder, with the bundles alone."""
    settle(monkeypatch, tmp_path)
    for name in ("b.zip", "bare.zip"):
        shutil.copy(comparison_folder / name, tmp_path)
    return tmp_path


def again(*options: str) -> int:
    return run_command(["compare", "--rerun", "b.zip", "--no-bounds", *options])


def test_a_bundle_run_again_elsewhere_gives_equal_texts(comparison_folder, elsewhere, capsys):
    assert again("--out", "again") == 0
    out = capsys.readouterr().out
    before, now = read_results(comparison_folder / "out").header, read_results(elsewhere / "again").header
    laps = read_results(comparison_folder / "out").laps

    assert f"{sum(len(lap.records) for lap in laps)} of {sum(len(lap.records) for lap in laps)} texts equal" in out
    assert [c.name for c in now.contenders] == [c.name for c in before.contenders]
    assert [c.methods for c in now.contenders] == [c.methods for c in before.contenders]
    assert [{k: s.value for k, s in c.settings.items()} for c in now.contenders] == [
        {k: s.value for k, s in c.settings.items()} for c in before.contenders
    ]
    assert (now.prompts.sha256, now.repeats, now.seed) == (before.prompts.sha256, 2, 3)
    assert "repeat:length=3 temperature=0: speedup" in out and "in the bundle" in out


def test_other_texts_are_named_and_the_exit_code_is_1(elsewhere, capsys):
    """A hybrid model of the same vocabulary."""
    assert again("-m", "toy:hybrid") == 1
    out, err = capsys.readouterr()

    assert "another text: plain on" in out
    assert "other than in b.zip: plain: setting model was" in err


def test_a_bundle_without_prompts_names_their_source_and_takes_them(comparison_folder, elsewhere, capsys):
    assert run_command(["compare", "--rerun", "bare.zip", "--no-bounds"]) == 2
    assert "bare.zip has no prompts" in (err := capsys.readouterr().err) and "prompts.jsonl" in err
    shutil.copy(comparison_folder / "prompts.jsonl", elsewhere)

    assert run_command(["compare", "--rerun", "bare.zip", "--no-bounds", "--prompts", "prompts.jsonl"]) == 0
    assert " texts equal those in bare.zip" in capsys.readouterr().out


def test_other_prompts_are_refused(elsewhere, capsys):
    (elsewhere / "p.jsonl").write_text(json.dumps({"id": "a", "prompt": "OTHER"}))

    assert again("--prompts", "p.jsonl") == 2
    assert "p.jsonl has other prompts than b.zip" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        ["--method", "repeat"],
        ["--temperature", "1"],
        ["--limit", "1"],
        ["--executor", "ray"],
        ["-o", "draft_max=2"],
        ["-n", "3"],
    ],
)
def test_what_the_bundle_decides_cannot_be_set(elsewhere, capsys, option):
    assert again(*option) == 2
    assert f"{option[0]} cannot be combined with --rerun" in capsys.readouterr().err.replace("--max-tokens", "-n")


def test_the_prompts_are_in_the_bundle_unless_they_are_left_out(elsewhere):
    def names(file):
        with zipfile.ZipFile(file) as archive:
            return set(archive.namelist())

    assert names("b.zip") - names("bare.zip") == {"prompts.jsonl"}


def test_the_header_names_every_plugin_with_the_hash_of_its_code(comparison_folder):
    plugins = {plugin.name: plugin for plugin in read_results(comparison_folder / "out").header.plugins}

    assert {"repeat", "mute", "oracle", "synthetic"} <= set(plugins)
    ours = plugins["synthetic"]
    assert (ours.kind, ours.distribution, ours.package) == ("rule", "spec-core", "spec_rules")
    assert ours.version and len(ours.sha256) == 64
    assert plugins["repeat"].package == "tests" and plugins["repeat"].sha256 != ours.sha256


def test_other_code_of_a_plugin_is_another_comparison(comparison_folder, elsewhere, monkeypatch, capsys):
    from spec_compare.records import plugins

    monkeypatch.setattr(plugins, "code_sha256", lambda package: "0" * 64)
    assert again() == 0

    assert "code of plugin" in capsys.readouterr().err


def test_the_code_of_a_package_is_hashed_by_name_and_content(tmp_path, monkeypatch):
    from spec_compare.records.plugins import code_sha256

    hashes = []
    for name, files in {
        "one": {"a.py": "1"},
        "two": {"a.py": "2"},
        "three": {"b.py": "1"},
        "four": {"a.py": "1"},
    }.items():
        (tmp_path / name / "sub").mkdir(parents=True)
        for file, text in {"__init__.py": "", "notes.txt": name, **files}.items():
            (tmp_path / name / file).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        __import__(name)
        hashes.append(code_sha256(name))

    assert hashes[0] == hashes[3] and len(set(hashes)) == 3
    assert code_sha256("no_such_package") is None


def test_files_that_settings_name_are_hashed(tmp_path):
    """Whatever the setting is called; a bare word is no path."""
    import attrs
    from spec_compare.measuring.collect import method_files

    @attrs.define
    class Lookup:
        table: str
        mode: str = "fast"

    (tmp_path / "table.bin").write_bytes(b"abc")
    (file,) = method_files("lookup", Lookup(str(tmp_path / "table.bin")), None)

    assert (file.bytes, file.sha256[:8]) == (3, "ba7816bf")
    assert method_files("lookup", Lookup(str(tmp_path / "absent.bin")), None) == []
