"""Settings of the server: where they may stand, and that nobody else trips over them."""

from __future__ import annotations

import shutil

import httpx
import pytest
from spec_cli.main import run_command
from spec_commands import common
from spec_serve.command import adapt_settings, without_own
from spec_serve.server_config import without_folders
from spec_serve.settings import ServeSettings
from spec_zoo import path as zoo_path

from spec_core import RunSettings, UsageError
from spec_core.commands import construct_plugin
from tests.serve.test_operation import program

FILE = 'model = "zoo:pico"\nmax_sequences = 3\n[serve]\nport = 1234\nqueue = 5\n'


def limits(settings):
    return construct_plugin(ServeSettings, settings.values_of("serve"), "serve")


def test_a_flag_is_stronger_than_the_environment_and_that_than_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(FILE)
    monkeypatch.setenv("SPEC_SERVE__PORT", "2345")
    limits_here = limits(common.settings_of({"serve.n_max": 3, "options": ("serve.stop_max=2",)}))

    assert (limits_here.port, limits_here.queue, limits_here.n_max, limits_here.stop_max, limits_here.host) == (
        2345,
        5,
        3,
        2,
        "localhost",
    )


def test_other_commands_read_the_same_file(tmp_path, monkeypatch, capsys):
    """A table of the server in spec.toml is no plugin's, and changes nothing for them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(FILE)

    assert run_command(["generate", "-p", "x =", "-n", "2"]) == 0
    assert run_command(["compat"]) == 0
    assert run_command(["generate", "-p", "x =", "-n", "2", "-o", "serve.port=1"]) == 2
    assert "a setting of `spec serve`" in capsys.readouterr().err


def test_a_wrong_setting_ends_the_command_before_a_model_is_loaded(tmp_path, monkeypatch, capsys):
    pytest.importorskip("fastapi", reason="needs the extra serve")
    monkeypatch.chdir(tmp_path)

    assert run_command(["serve", "-m", "no-such-model", "-o", "serve.prot=1"]) == 2
    assert "no setting 'prot'" in capsys.readouterr().err
    assert run_command(["serve", "-m", "no-such-model", "--port", "70000"]) == 2
    assert "port" in capsys.readouterr().err


def test_a_server_has_other_defaults_of_the_run_and_says_so(tmp_path, monkeypatch):
    """What the user sets stays."""
    monkeypatch.chdir(tmp_path)
    settings = adapt_settings(without_own(common.settings_of({"model": "zoo:pico", "serve.port": 1})))
    asked = adapt_settings(common.settings_of({"on_error": "raise", "prefill_budget": 0}))

    assert settings.build(RunSettings).on_error == "isolate" and settings.build(RunSettings).prefill_budget == 128
    assert settings.table["prefill_budget"].origin == "spec serve"
    assert not [name for name in settings.table if name.startswith("serve.")]
    assert (asked["on_error"], asked["prefill_budget"]) == ("raise", 0)


def test_the_key_is_shown_nowhere():
    assert "secret" not in repr(ServeSettings(api_key="secret"))


def test_a_key_that_is_empty_is_refused():
    with pytest.raises(UsageError, match="api_key"):
        construct_plugin(ServeSettings, {"api_key": ""}, "serve")


@pytest.mark.repeats(1)
@pytest.mark.parametrize("location", ["{0}/models/tiny.gguf", "gguf:{0}/models/tiny.gguf", "models/tiny.gguf"])
def test_answers_name_a_model_by_its_file_and_show_no_folder(tmp_path, monkeypatch, location):
    (tmp_path / "models").mkdir()
    shutil.copyfile(zoo_path("pico"), tmp_path / "models" / "tiny.gguf")
    monkeypatch.chdir(tmp_path)
    settings = f'model = "{location.format(tmp_path)}"\nmethods = ["ngram"]\n[serve]\nport = 0\n'
    (tmp_path / "spec.toml").write_text(settings)
    with program(tmp_path) as (_, url), httpx.Client(base_url=url, timeout=30) as client:
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
        answers = [client.post(path, json=body) for path, body in {
            "/v1/completions": {"prompt": "a", "max_tokens": 2}, "/v1/chat/completions": chat, "/v1/messages": chat,
            "/v1/responses": {"input": "a", "max_output_tokens": 2}, "/completion": {"prompt": "a", "n_predict": 2},
        }.items()]  # fmt: skip
        listed, props = client.get("/v1/models"), client.get("/props")

    assert [answer.json()["model"] for answer in answers] == ["tiny.gguf"] * 5
    assert listed.json()["data"][0]["id"] == props.json()["model_path"] == "tiny.gguf"
    assert str(tmp_path) not in "".join(answer.text for answer in (*answers, listed, props))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("draft-model=/srv/models/head.gguf", "draft-model=head.gguf"),
        ("eagle3:file=/srv/a b/head.gguf,p_min=0.3", "eagle3:file=head.gguf,p_min=0.3"),
        ("transformers:/srv/qwen", "transformers:qwen"),
        ("hub:owner/name:file.gguf", "hub:owner/name:file.gguf"),
        ("zoo:pico", "zoo:pico"),
        (["ngram", "mtp=/a/b"], ["ngram", "mtp=b"]),
        (0.5, 0.5),
    ],
    ids=str,
)
def test_settings_are_shown_without_folders(value, shown):
    assert without_folders({"x": {"value": value}}) == {"x": {"value": shown}}
