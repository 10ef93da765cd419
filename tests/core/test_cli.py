"""The program from the command line: output, errors with a hint, exit codes, and no torch import without need."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from importlib import metadata
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
import safetensors.torch
from safetensors.torch import load_file
from spec_cli.main import run_command
from spec_commands.environment import facts

from spec_core import __main__
from spec_core.assembly.discovery import find_plugin
from tests.support.installed import ROOT
from tests.support.small_models import tiny_gguf, tiny_hybrid

MODEL = str(tiny_gguf(0))
PROMPT = ["-p", "def add(a, b):"]


@pytest.fixture
def spec(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    for name in [n for n in __import__("os").environ if n.startswith("SPEC_")]:
        monkeypatch.delenv(name)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run_command(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["settings"]], ids=lambda a: a[0])
def test_listing_imports_nothing_that_takes_long(arguments):
    """Only commands that run a model import modules that take a second."""
    slow = {"torch", "numpy", "transformers", "tokenizers", "gguf", "safetensors", "jinja2", "rich"}
    lines = [
        "import sys",
        "from spec_cli.main import run_command",
        "from tests.support.ours import without_strangers",
        f"with without_strangers(): run_command({arguments!r})",
        f"print({slow!r} & set(sys.modules))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "set()"


def test_generating_imports_nothing_that_takes_long_and_is_not_used():
    """Modules for chat templates, reports, training and other models are not imported either."""
    unused = {"transformers", "triton", "torch._dynamo", "sympy", "jinja2", "rich", "gguf", "safetensors", "scipy"}
    command = ["generate", "-m", MODEL, *PROMPT, "-n", "1", "--method", "ngram"]
    run = f"import sys; from spec_cli.main import run_command; run_command({command!r})"
    script = f"{run}; print({unused!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"


def test_finding_a_plugin_reads_the_entry_points_once_and_no_other_metadata(monkeypatch):
    """Entry points are a file of every installed distribution, and every run looks up plugins by name."""
    reads, real = [], metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda **keywords: reads.append(keywords) or real(**keywords))
    monkeypatch.setattr(metadata.Distribution, "metadata", property(lambda self: pytest.fail("metadata were read")))

    assert [find_plugin(name).kind for name in ("ngram", "typical")] == ["method", "rule"]
    assert len(reads) == 1


def test_generate_streams_the_text_and_sums_up_on_standard_error(spec):
    code, out, err = spec("generate", "-m", MODEL, *PROMPT, "-n", "12", "--ignore-eos", "--method", "ngram")

    assert code == 0
    assert out.strip("\n")
    assert "12 tokens" in err


@pytest.mark.repeats(2)
@pytest.mark.slow
@pytest.mark.parametrize("output", ["&-", "/dev/full"], ids=["closed", "full"])
@pytest.mark.parametrize(
    "arguments", [["generate", "-m", MODEL, *PROMPT, "-n", "2"], ["plugins"], ["--help"]], ids=lambda a: a[0]
)
def test_a_result_that_cannot_be_written_is_an_error(arguments, output):
    """The exit code is not 0 if the text could not be written."""
    command = [sys.executable, "-m", "spec_core", *arguments]
    done = subprocess.run(["sh", "-c", f'exec "$@" >{output}', "sh", *command], capture_output=True, check=False)

    assert done.returncode == 1, done.stderr
    assert done.stderr.count(b"\n") <= 3 and b"the output cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_command_that_prints_nothing_needs_no_output(tmp_path):
    command = [sys.executable, "-m", "spec_core", "score", "-m", MODEL, "--tokens", "1,2", "--out", tmp_path / "s"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *map(str, command)], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    assert load_file(tmp_path / "s")["logits"].shape[0] == 2


def test_python_m_runs_the_program_of_this_distribution_alone(monkeypatch):
    """Another distribution may have a program of the same name."""
    theirs = SimpleNamespace(dist=SimpleNamespace(name="another"), load=lambda: pytest.fail("another program was run"))
    ours = SimpleNamespace(dist=SimpleNamespace(name="spec-core"), load=lambda: lambda: ran.append("spec"))
    ran = []
    monkeypatch.setattr(__main__, "entry_points", lambda **keywords: [theirs, ours])
    __main__.main()
    assert ran == ["spec"]

    monkeypatch.setattr(__main__, "entry_points", lambda **keywords: [theirs])
    with pytest.raises(SystemExit, match="is not installed"):
        __main__.main()


def test_score_writes_through_to_what_is_no_regular_file(spec, tmp_path):
    """A pipe stays a pipe; a regular file is replaced as a whole, behind a link too."""
    pipe, file, link = tmp_path / "pipe", tmp_path / "file", tmp_path / "link"
    os.mkfifo(pipe)
    file.write_bytes(b"old")
    link.symlink_to(file)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    for out in (pipe, link, "/dev/null"):
        assert spec("score", "-m", MODEL, "--tokens", "1,2", "--out", str(out))[0] == 0
    reader.join()

    assert stat.S_ISFIFO(pipe.stat().st_mode) and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert link.is_symlink() and file.read_bytes() == read[0]
    assert not list(tmp_path.glob("*.part"))


def test_tensors_go_down_a_pipe_that_is_the_standard_output():
    command = [sys.executable, "-m", "spec_core", "score", "-m", MODEL, "--tokens", "1,2", "--out", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    assert safetensors.torch.load(done.stdout)


def test_a_file_beside_the_output_stays(spec, tmp_path):
    """The temporary file has a name that no existing file has."""
    (tmp_path / "scores.part").write_text("mine")

    assert spec("score", "-m", MODEL, "--tokens", "1,2", "--out", "scores")[0] == 0
    assert (tmp_path / "scores.part").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


def test_generate_as_json_has_text_tokens_stats_and_settings(spec):
    code, out, _ = spec(
        "generate", "-m", MODEL, *PROMPT, "-n", "9", "--ignore-eos", "--json", "--logprobs", "2", "--seed", "3"
    )
    body = json.loads(out)

    assert code == 0
    assert len(body["tokens"]) == 9
    assert body["finish_reason"] == "length"
    assert body["settings"]["seed"] == {"value": 3, "origin": "flag"}
    assert {"tokens_per_step", "forwards", "seconds"} <= set(body["stats"])
    assert len(body["logprobs"]) == 9 and len(body["logprobs"][0]["top"]) == 2


def test_methods_change_no_text(spec):
    texts = [
        spec(
            "generate", "-m", MODEL, *PROMPT, "-n", "40", "--temperature", "0.9", "--seed", "5", "--ignore-eos", *more
        )[1]
        for more in (
            [],
            ["--method", "ngram"],
            ["--method", f"draft-model={tiny_gguf(1)}", "-o", "draft-model.p_min=0"],
        )
    ]

    assert texts[0] == texts[1] == texts[2]


def test_show_drafts_marks_what_was_proposed(spec):
    _, out, err = spec(
        "generate", "-m", MODEL, *PROMPT, "-n", "40", "--ignore-eos", "--method", "ngram", "--show-drafts"
    )

    assert "[" in out
    assert "ngram" in err


def test_a_chat_prompt_goes_through_the_template(spec, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    _, chat, _ = spec("generate", "-m", MODEL, "-p", "hi", "--chat", "-n", "5", "--json")
    _, messages, _ = spec("generate", "-m", MODEL, "--messages", "m.json", "-n", "5", "--json")

    assert json.loads(chat)["prompt_tokens"] == json.loads(messages)["prompt_tokens"] > 3


def test_no_tokens_asked_for_is_an_empty_answer(spec):
    code, out, _ = spec("generate", "-m", MODEL, *PROMPT, "-n", "0", "--json")

    assert (code, json.loads(out)["tokens"], json.loads(out)["finish_reason"]) == (0, [], "length")


LONG = "x " * 400
DRAFT = ["draft", "-m", MODEL, "--method", f"draft-model={tiny_gguf(1)}", "--out", "d"]
MISTAKES = {
    "no model": (["generate", *PROMPT], "no model"),
    "no such file": (["generate", "-m", "nowhere.gguf", *PROMPT], "no such file"),
    "unknown scheme": (["generate", "-m", "zooo:pico", *PROMPT], "zooo"),
    "unknown zoo model": (["generate", "-m", "zoo:pica", *PROMPT], "pica"),
    "no model file": (["generate", "-m", __file__, *PROMPT], "target recognises; asked: gguf, hf"),
    "unknown method": (["generate", "-m", MODEL, *PROMPT, "--method", "ngrm"], "ngrm"),
    "unknown setting": (["generate", "-m", MODEL, *PROMPT, "-o", "draft_mx=3"], "draft_mx"),
    "unknown plugin setting": (["generate", "-m", MODEL, *PROMPT, "--method", "ngram", "-o", "ngram.n_mx=3"], "n_mx"),
    "unfit value": (["generate", "-m", MODEL, *PROMPT, "--method", "ngram", "-o", "ngram.n_max=many"], "n_max"),
    "no key and value": (["generate", "-m", MODEL, *PROMPT, "-o", "ngram"], "KEY=VALUE"),
    "weights for ngram": (["generate", "-m", MODEL, *PROMPT, "--method", "ngram=x.gguf"], "no weights"),
    "no draft model": (["generate", "-m", MODEL, *PROMPT, "--method", "draft-model"], "draft model"),
    "another vocabulary": (
        ["generate", "-m", MODEL, *PROMPT, "--method", f"draft-model={tiny_gguf(2, salt='other words ')}"],
        "vocabulary",
    ),
    "settings after a file": (
        ["generate", "-m", MODEL, *PROMPT, "--method", "draft-model=zoo:pico-draft:translate=true"],
        "write draft-model:file=zoo:pico-draft,translate=true",
    ),
    "prompt too long": (["generate", "-m", MODEL, "-p", LONG], "context"),
    "empty prompt": (["generate", "-m", MODEL, "-p", ""], "empty"),
    "two prompts": (["generate", "-m", MODEL, *PROMPT, "--tokens", "1"], "prompt"),
    "no token ids": (["generate", "-m", MODEL, "--tokens", "1,b"], "token ids"),
    "token outside": (["generate", "-m", MODEL, "--tokens", "1,99999"], "99999"),
    "negative n": (["generate", "-m", MODEL, *PROMPT, "-n", "-1"], "max_tokens"),
    "temperature": (["generate", "-m", MODEL, *PROMPT, "--temperature", "-1"], "temperature"),
    "top-p": (["generate", "-m", MODEL, *PROMPT, "--top-p", "0"], "top_p"),
    "logit bias": (["generate", "-m", MODEL, *PROMPT, "--logit-bias", "x"], "logit-bias"),
    "stop token outside": (["generate", "-m", MODEL, *PROMPT, "--stop-token", "99999"], "stop token 99999"),
    "logprobs without json": (["generate", "-m", MODEL, *PROMPT, "--logprobs", "2"], "add --json"),
    "two outputs": (["settings", "--toml", "--json"], "--toml and --json"),
    "draft after a token outside": ([*DRAFT, "--tokens", "1,99999", "-n", "2"], "token 99999"),
    "draft longer than the context": ([*DRAFT, "--tokens", "1,2", "-n", "5000"], "a draft of 5000"),
    "setting of an absent rule": (
        ["generate", "-m", MODEL, *PROMPT, "-o", "typical.epsilon=0.1"],
        "add --rule typical",
    ),
    "setting of an absent rollback": (
        ["generate", "-m", MODEL, *PROMPT, "-o", "gdn-rollback.n=2"],
        "add --rollback gdn-rollback",
    ),
    "no such prompt file": (["generate", "-m", MODEL, "-f", "absent"], "absent: No such file or directory\n"),
    "no such settings file": (["settings", "--config", "absent"], "absent: No such file or directory\n"),
    "empty stop": (["generate", "-m", MODEL, *PROMPT, "--stop", ""], "stop"),
    "context too large": (["generate", "-m", MODEL, *PROMPT, "--context", "100000"], "context"),
    "device": (["generate", "-m", MODEL, *PROMPT, "--device", "tpu"], "tpu"),
    "dtype": (["generate", "-m", MODEL, *PROMPT, "--dtype", "int3"], "int3"),
    "unknown rule": (["generate", "-m", MODEL, *PROMPT, "--rule", "cupled"], "cupled"),
    "unknown command": (["generte"], "generte"),
    "no prompts": (["compare", "-m", MODEL, "--method", "ngram"], "prompts"),
    "unknown option": (["generate", "--colour"], "colour"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_with_exit_code_2(spec, name):
    """What was found, what to do; never a traceback."""
    arguments, message = MISTAKES[name]
    code, out, err = spec(*arguments)

    assert code == 2, err
    assert message in err
    assert "Traceback" not in err + out


def test_a_prompt_file_that_is_no_utf8_is_refused(spec, tmp_path):
    (tmp_path / "p.txt").write_bytes(b"abc\xff\xfe")
    code, _, err = spec("generate", "-m", MODEL, "-f", "p.txt")

    assert code == 2
    assert "UTF-8" in err


def test_compat_reads_no_weights_and_lists_capabilities(spec):
    code, out, _ = spec("compat", "-m", MODEL, "--method", "ngram", "--json")
    body = json.loads(out)

    assert code == 0
    assert {p["name"]: p["owns"] for p in body["plugins"]} == {"ngram": [], "target": ["attention"]}


def test_compat_shows_a_refusal_and_exits_with_2(spec):
    code, out, _ = spec("compat", "-m", MODEL, "--method", "draft-model")

    assert code == 2
    assert "refused" in out


def test_score_writes_logits_and_hidden_states(spec, tmp_path):
    code, _, _ = spec("score", "-m", MODEL, "--tokens", "1,2,3", "--hidden", "--out", "s.safetensors")
    tensors = load_file(tmp_path / "s.safetensors")

    assert code == 0
    assert list(tensors["logits"].shape) == [3, 300]
    assert set(tensors) == {"logits", "hidden.0", "hidden.1", "hidden.2", "hidden.final"}


@pytest.mark.parametrize("method", ["ngram", f"draft-model={MODEL}"], ids=["ngram", "draft-model"])
def test_draft_writes_what_a_method_drafts(spec, tmp_path, method):
    code, _, err = spec(
        "draft", "-m", MODEL, "--method", method, "--tokens", "5,6,7,5,6,7,5,6", "-n", "3", "--out", "d.safetensors"
    )
    tensors = load_file(tmp_path / "d.safetensors")

    assert code == 0
    assert len(tensors["tokens"]) == 3
    assert ("logits" in tensors) == method.startswith("draft-model")
    if method == "ngram":
        assert tensors["tokens"].tolist() == [7, 5, 6]
        assert "no logits" in err


@pytest.mark.parametrize("method", ["mtp", "ngram", "suffix", "recycling", "draft-model"])
def test_every_method_drafts_as_many_tokens_as_asked(spec, tmp_path, method):
    """Also for a head with small probabilities: other implementations draft all its tokens."""
    context = ",".join(str(40 + i % 5) for i in range(20))
    model = ["-m", str(tiny_hybrid(0))]
    method += f"={tiny_gguf(1)}" if method == "draft-model" else ""
    code, _, _ = spec("draft", *model, "--method", method, "--tokens", context, "-n", "40", "--out", "d.safetensors")

    assert code == 0
    assert len(load_file(tmp_path / "d.safetensors")["tokens"]) == 40


def test_settings_as_a_file_reproduce_themselves(spec, tmp_path):
    arguments = ["settings", "-m", MODEL, "--method", "ngram", "-o", "ngram.n_max=7", "--temperature", "0.5", "--toml"]
    _, first, _ = spec(*arguments)
    (tmp_path / "spec.toml").write_text(first)
    _, second, _ = spec("settings", "--method", "ngram", "--toml")

    assert first == second
    assert "n_max = 7" in second


def test_plugins_are_listed_with_hooks_when_asked(spec):
    _, out, _ = spec("plugins", "--hooks", "--json")
    rows = {row["name"]: row for row in map(json.loads, out.splitlines())}

    assert rows["ngram"]["kind"] == "method"
    assert "draft" in rows["ngram"]["hooks"]


def test_env_names_versions_and_kernels(spec):
    code, out, _ = spec("env", "--json")

    assert code == 0
    assert {"torch", "pluggy"} <= set(json.loads(out)["packages"])
    assert "reference" in json.loads(out)["kernels"]


def test_a_fact_that_cannot_be_told_says_why():
    """``spec env`` is for bug reports, so a broken package must not make it fail."""
    broken = EntryPoint("kernels", "no_such_package:fact", "spec_core.environment_info")

    assert facts([broken])["kernels"].startswith("unknown: ModuleNotFoundError")
