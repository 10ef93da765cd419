"""Names of plugins on the command line, with a file or with settings."""

from __future__ import annotations

import json

import pytest
from spec_cli.main import run_command

from spec_core import Run, UsageError, load
from spec_core.settings.file import read_file
from spec_core.settings.named import format_method, name_of, parse_method
from tests.support.small_models import tiny_gguf


@pytest.mark.parametrize(
    ("spec", "name", "own"),
    [
        ("ngram", "ngram", {}),
        ("draft-model=a:b.gguf", "draft-model", {"file": "a:b.gguf"}),
        ("suffix:top_n=3,depth=4", "suffix", {"top_n": "3", "depth": "4"}),
        ("eagle3:file=zoo:x,width=2", "eagle3", {"file": "zoo:x", "width": "2"}),
    ],
)
def test_a_name_with_what_is_written_with_it(spec, name, own):
    assert parse_method(spec) == (name, own)
    assert name_of(spec) == name
    assert format_method(*parse_method(spec)) == spec


@pytest.mark.parametrize("spec", ["ngram:", "ngram:longest", "ngram:=3", "ngram:longest=3,"])
def test_what_is_no_setting_is_refused(spec):
    with pytest.raises(UsageError, match="must be key=value"):
        parse_method(spec)


def test_two_uses_of_a_method_have_settings_of_their_own():
    target = load(tiny_gguf())
    plugins = [Run(target, [f"ngram:draft_max={n}"]).plugins[0].plugin for n in (2, 5)]

    assert [plugin.draft_max for plugin in plugins] == [2, 5]


def test_a_setting_that_a_method_does_not_have_is_refused_by_name():
    with pytest.raises(UsageError, match="ngram has no setting 'width'"):
        Run(load(tiny_gguf()), ["ngram:width=2"])


def test_files_in_a_settings_file_are_relative_to_it(tmp_path):
    (tmp_path / "spec.toml").write_text('methods = ["eagle3:file=head.gguf,width=2+draft-model=small.gguf"]')

    assert read_file(tmp_path / "spec.toml")["methods"] == [
        f"eagle3:file={tmp_path}/head.gguf,width=2+draft-model={tmp_path}/small.gguf"
    ]


def test_one_comparison_holds_a_method_against_itself(tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a b a b a"}\n')
    methods = ["--method", "ngram:draft_max=1", "--method", "ngram:draft_max=4+suffix"]

    code = run_command(["compare", "-m", str(tiny_gguf()), "-n", "4", "--prompts", str(prompts), "--json", *methods])

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert code == 0
    assert {row["contender"] for row in rows} == {"plain", "ngram:draft_max=1", "ngram:draft_max=4 + suffix"}
