"""The program with plugins of other packages: failures, refusals, sources of tokens, unused plugins."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest
from safetensors.torch import load_file
from spec_cli.main import run_command
from spec_cli.plugins import describe_plugin

from tests.support.toy_plugins import install

DENSE = ["-m", "toy:dense"]
PROMPT = ["-p", "HELLO", "-n", "24"]


@pytest.fixture
def spec(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder with the toy plugins; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("SPEC_")]:
        monkeypatch.delenv(name)
    install(monkeypatch)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run_command(list(arguments))
        return code, *capsys.readouterr()

    return call


def test_a_failing_plugin_is_one_message_with_exit_code_1(spec):
    code, _, err = spec("generate", *DENSE, *PROMPT, "--method", "broken")

    assert code == 1
    assert "'broken' failed in draft" in err and "out of ideas" in err
    assert "Traceback" not in err


def test_a_method_may_save_what_it_learned_when_the_text_is_complete(spec, tmp_path):
    assert spec("generate", *DENSE, *PROMPT, "--method", "noted")[0] == 0

    assert (tmp_path / "noted.txt").read_text() == "saved"


def test_a_failing_plugin_may_be_switched_off_and_the_text_stays(spec):
    plain = spec("generate", *DENSE, *PROMPT, "--json")[1]
    code, out, _ = spec("generate", *DENSE, *PROMPT, "--method", "broken", "-o", "on_error=isolate", "--json")

    assert code == 0
    assert json.loads(plain)["tokens"] == json.loads(out)["tokens"]
    assert "broken" in json.loads(out)["stats"]["switched_off"]


@pytest.mark.parametrize("place", ["before", "after", "variable"])
def test_the_traceback_of_a_failing_plugin_is_shown_on_request(spec, monkeypatch, place):
    """With --debug before or after the command, or SPEC_DEBUG=1; otherwise a line explains these."""
    command = ["generate", *DENSE, *PROMPT, "--method", "broken"]
    _, _, quiet = spec(*command)
    if place == "variable":
        monkeypatch.setenv("SPEC_DEBUG", "1")
    code, _, err = spec(*(["--debug"] if place == "before" else []), *command, *(["--debug"] * (place == "after")))

    assert "--debug or SPEC_DEBUG=1 shows the traceback" in quiet and "raise RuntimeError" not in quiet
    assert code == 1
    assert 'raise RuntimeError("out of ideas")' in err
    assert "error: plugin 'broken' failed in draft" in err


def test_a_variable_that_is_nearly_ours_is_a_warning(spec, monkeypatch):
    monkeypatch.setenv("SPEC_DRFT_MAX", "2")
    monkeypatch.setenv("SPEC_CPU_2017", "/opt/spec")
    code, _, err = spec("generate", *DENSE, *PROMPT)

    assert code == 0
    assert "SPEC_DRFT_MAX is not a setting and is ignored; did you mean SPEC_DRAFT_MAX?" in err
    assert "CPU_2017" not in err


def test_a_bug_keeps_its_traceback(spec):
    with pytest.raises(ZeroDivisionError):
        spec("crash")


def test_an_interrupted_command_is_quiet(spec):
    code, out, err = spec("stop")

    assert code == 130
    assert "Traceback" not in out + err


def test_a_command_that_cannot_be_imported_leaves_the_help_of_the_others(spec):
    code, out, _ = spec("--help")

    assert code == 0
    assert "generate" in out
    assert re.search(r"absent +command 'absent' of .* cannot be imported", out)
    assert spec("absent")[0] == 2


def test_a_reader_that_leaves_gets_no_complaint():
    """``spec plugins | head -0``: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "spec_cli.main", "settings"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)

    assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_an_output_that_is_full_is_a_message():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "spec_cli.main", "plugins"], stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert done.returncode == 1
    assert done.stderr.startswith(b"error: the output cannot be written: No space left on device\n  standard output")
    assert b"Traceback" not in done.stderr


def test_the_owner_of_recurrent_state_is_named_when_it_comes_by_itself(spec):
    plain = spec("generate", "-m", "toy:hybrid", *PROMPT, "--json")
    code, out, err = spec("generate", "-m", "toy:hybrid", *PROMPT, "--method", "repeat", "--json")

    assert code == 0
    assert "toy-rollback restores the target's recurrent state" in err
    assert "toy-rollback" not in plain[2], "plain decoding needs no owner"
    assert json.loads(plain[1])["tokens"] == json.loads(out)["tokens"]


def test_a_setting_of_a_plugin_that_takes_no_part_is_refused(spec):
    code, _, err = spec("generate", *DENSE, *PROMPT, "-o", "repeat.back=3")

    assert code == 2
    assert "repeat is not used in this run" in err and "--method repeat" in err


def test_a_table_for_a_plugin_that_takes_no_part_may_stand_in_the_file(spec, tmp_path):
    (tmp_path / "spec.toml").write_text('model = "toy:dense"\n[repeat]\nback = 3\n')

    assert spec("generate", *PROMPT)[0] == 0


def test_layers_reach_the_run(spec, tmp_path, monkeypatch):
    """Flag over environment over file: each of three settings from another layer."""
    (tmp_path / "spec.toml").write_text('model = "toy:dense"\nmax_tokens = 3\nseed = 3\ntemperature = 0.5\n')
    monkeypatch.setenv("SPEC_MAX_TOKENS", "4")
    monkeypatch.setenv("SPEC_SEED", "4")
    _, out, _ = spec("generate", "-p", "HELLO", "--seed", "5", "--json")
    settings = json.loads(out)["settings"]

    assert len(json.loads(out)["tokens"]) == 4
    assert settings["seed"] == {"value": 5, "origin": "flag"}
    assert settings["max_tokens"] == {"value": 4, "origin": "environment"}
    assert settings["temperature"] == {"value": 0.5, "origin": "spec.toml"}


def test_a_settings_file_may_be_named(spec, tmp_path):
    (tmp_path / "mine.toml").write_text('model = "toy:dense"\nmax_tokens = 2\n')

    assert len(json.loads(spec("generate", "-p", "A", "--config", "mine.toml", "--json")[1])["tokens"]) == 2
    assert spec("generate", "-p", "A", "--config", "absent.toml")[0] == 2


def test_the_prompt_may_be_piped_in(spec, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"HELLO")))
    piped = spec("generate", *DENSE, "-n", "8")[1]

    assert piped == spec("generate", *DENSE, "-p", "HELLO", "-n", "8")[1]


def test_without_a_prompt_a_terminal_is_told_where_one_may_be_given(spec, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    code, _, err = spec("generate", *DENSE)

    assert code == 2
    assert "-p TEXT" in err


def test_a_target_without_chat_template_says_so(spec):
    code, _, err = spec("generate", *DENSE, *PROMPT, "--chat")

    assert code == 2
    assert "chat template" in err


@pytest.mark.parametrize("content", ["{", "{}", "[]", '["hi"]', "[" * 100_000], ids=lambda c: c[:6])
def test_messages_that_are_none_are_refused(spec, tmp_path, content):
    (tmp_path / "m.json").write_text(content)
    code, _, err = spec("generate", *DENSE, "--messages", "m.json")

    assert code == 2
    assert "m.json" in err and "Traceback" not in err


def test_every_method_has_its_own_brackets(spec):
    """Exactly the accepted tokens of a method are in that method's brackets."""
    options = ["--method", "mute", "--method", "repeat", "-o", "repeat.back=2", "--ignore-eos"]
    body = json.loads(spec("generate", *DENSE, *PROMPT, *options, "--json")[1])
    _, out, err = spec("generate", *DENSE, *PROMPT, *options, "--show-drafts")

    assert "[mute], {repeat}" in err
    assert re.sub(r"[{}]", "", out.removesuffix("\n")) == re.sub(r"[{}]", "", body["text"])
    assert len(re.findall(r"\{.\}", out)) == body["stats"]["accepted"] > 0


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)], ids=["colours", "NO_COLOR"])
def test_a_terminal_gets_colours_unless_it_wants_none(spec, monkeypatch, no_color, coloured):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", no_color)
    options = ["--method", "repeat", "-o", "repeat.back=2"]
    _, out, _ = spec("generate", *DENSE, *PROMPT, *options, "--show-drafts")

    assert ("\x1b[32m" in out) == coloured
    assert ("[" in out.replace("\x1b[", "")) != coloured


@pytest.mark.parametrize("length", [2, 30, 600], ids=str)
def test_a_draft_follows_the_whole_context(spec, tmp_path, length):
    """Also a prompt that takes several forwards."""
    tokens = [3 + i % 7 for i in range(length)]
    context = ",".join(map(str, tokens))
    arguments = ["--context", "1000", "--method", "shown", "--tokens", context, "-n", "2", "--out", "d.safetensors"]
    code, _, _ = spec("draft", *DENSE, *arguments)
    tensors = load_file(tmp_path / "d.safetensors")

    assert code == 0
    assert tensors["tokens"].tolist() == tokens[-2:]
    assert tensors["logits"].argmax(-1).tolist() == tokens[-2:]


def test_a_method_that_drafts_less_says_so(spec, tmp_path):
    arguments = ["--tokens", "5,6,7,8", "-n", "6", "--out", "d.safetensors"]
    code, _, err = spec("draft", *DENSE, "--method", "repeat", *arguments)

    assert code == 0
    assert load_file(tmp_path / "d.safetensors")["tokens"].tolist() == [7, 8, 7]
    assert "drafted 3 of 6" in err and "no logits" in err


@pytest.mark.parametrize(
    ("options", "length"), [([], 9), (["-o", "cautious.p_min=0.5"], 2), (["-o", "cautious.length=4"], 4)], ids=str
)
def test_a_draft_is_as_long_as_asked_whatever_the_thresholds(spec, tmp_path, options, length):
    """A method declares the disabling value of each threshold; values set by the user are kept."""
    arguments = ["--method", "cautious", *options, "--tokens", "5,6,7,8", "-n", "9", "--out", "d.safetensors"]
    code, _, _ = spec("draft", *DENSE, *arguments)

    assert code == 0
    assert len(load_file(tmp_path / "d.safetensors")["tokens"]) == length


def test_no_draft_at_all_is_a_failure(spec):
    code, _, err = spec("draft", *DENSE, "--method", "mute", "--tokens", "5,6", "-n", "2", "--out", "d.safetensors")

    assert code == 1
    assert "drafts nothing" in err


@pytest.mark.parametrize("command", ["score", "draft"])
def test_a_file_that_cannot_be_written_is_a_message(spec, command):
    more = ["--method", "repeat", "-n", "2"] if command == "draft" else []
    code, _, err = spec(command, *DENSE, *more, "--tokens", "5,6", "--out", "nowhere/d.safetensors")

    assert code == 2
    assert "cannot be written" in err


def test_settings_of_a_plugin_carry_their_help_and_origin(spec):
    _, out, _ = spec("settings", "--method", "repeat", "-o", "repeat.length=2")

    assert re.search(r"repeat\.back +2 +default +how far to look back", out)
    assert re.search(r"repeat\.length +2 +flag", out)


def test_a_misspelt_setting_of_a_method_that_is_not_used_is_noted(spec, tmp_path):
    """Of the file or the environment; one that exists is not, and one of a method in use is refused."""
    (tmp_path / "spec.toml").write_text("[repeat]\nnonsense = 3\nlength = 2\n[cautious]\nlength = 2\n")
    code, _, err = spec("generate", *DENSE, *PROMPT, "--method", "mute")
    refused, _, output = spec("generate", *DENSE, *PROMPT, "--method", "repeat")

    assert code == 0
    assert "warning: repeat has no setting 'nonsense' (spec.toml); it has: " in err
    assert err.count("warning:") == 1
    assert refused == 2 and "repeat has no setting 'nonsense'" in output


def test_a_setting_of_a_controller_that_is_not_used_names_its_option(spec):
    code, _, err = spec("generate", *DENSE, *PROMPT, "-o", "auto.balance=3")

    assert code == 2 and "add --control auto" in err


@pytest.mark.release
def test_names_of_plugins_do_not_touch_the_next_column(spec):
    rows = spec("plugins")[1].splitlines()

    assert all(
        row.split()[0] in {json.loads(line)["name"] for line in spec("plugins", "--json")[1].splitlines()}
        for row in rows
    )


def test_a_command_that_is_none_is_listed_with_its_error(spec):
    code, out, _ = spec("--help")
    refused, _, err = spec("bare")

    assert code == 0 and "is of type function, a click command is needed" in " ".join(out.split())
    assert refused == 2 and "is of type function" in err


def test_plugins_are_listed_with_what_they_do_and_none_is_imported(spec, monkeypatch):
    monkeypatch.delitem(sys.modules, "spec_methods.eagle3", raising=False)
    code, out, _ = spec("plugins", "--json")
    rows = {(row["kind"], row["name"]): row for row in map(json.loads, out.splitlines())}

    assert code == 0 and "spec_methods.eagle3" not in sys.modules
    assert rows["method", "eagle3"]["description"].startswith("Drafts with an EAGLE-3 head")
    assert rows["target", "gguf"]["description"].startswith("Load a model.")
    own = [row for row in rows.values() if row["distribution"] == "spec-core"]
    assert all(row["description"] for row in own), [row["name"] for row in own if not row["description"]]


def test_a_plugin_whose_source_cannot_be_read_has_no_description():
    assert describe_plugin("no_such_package.module", "X") == ""
    assert describe_plugin("json", "loads").startswith("Deserialize")
    assert describe_plugin("json", "nothing") == ""
