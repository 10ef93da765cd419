"""``spec train`` from the command line on tiny models: output, resuming, and errors.

One file, since every test calls the same command with the words and the data below.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from spec_cli import main as cli
from spec_train import output
from spec_train.training import trainer
from spec_train.training.log import Log
from spec_train.training.loss_log import LossLog
from spec_train.training.training_progress import StepProgress, clock, curve

from spec_core import load
from tests.methods.drafted import draft_file
from tests.support.small_models import tiny_gguf, tiny_hybrid, tiny_kimi, tiny_lfm2

KINDS = ("eagle3", "dflash")
SHORT = {"eagle3": ["--depth", "2"], "dflash": ["--block", "4", "--layers", "1"]}


@pytest.fixture
def data(tmp_path) -> Path:
    path = tmp_path / "texts.jsonl"
    text = "def add_{0}(a, b):\n    return a + b + {0}\nthe quick brown fox jumps over {0} dogs\n"
    lines = [{"text": text.format(i) * 2} for i in range(12)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def words(kind, out, *more, model=None) -> list[str]:
    target = str(model or tiny_gguf(0, layers=4))
    small = ["--length", "40", "--batch", "2", "--answer", "12", "--held-out", "2", "--threads", "1"]
    return ["train", kind, "-m", target, "--out", str(out), *small, *SHORT[kind], *map(str, more)]


def loss(printed: str) -> float:
    return float(re.search(r"loss (\d+\.\d{8})", printed)[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "model",
    [lambda: tiny_gguf(0, layers=4), tiny_hybrid, tiny_lfm2, tiny_kimi],
    ids=["dense", "hybrid", "lfm2", "kimi-linear"],
)
def test_a_head_is_trained_written_and_fits(kind, model, data, tmp_path, capsys):
    out = tmp_path / "head.gguf"

    assert cli.run_command(words(kind, out, "--data", data, "--steps", 4, model=model())) == 0
    printed = capsys.readouterr()
    head = load(out, weights=False)

    assert "tokens per step, accepted by position" in printed.out
    assert "12 texts" not in printed.err
    assert "11 texts to train on, 1 held out" in printed.err
    assert head.info.family == kind
    assert head.misfit(load(model(), weights=False)) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["head.gguf", "texts.jsonl"]


@pytest.mark.parametrize(
    ("kind", "layouts"), [("eagle3", ("speculators", "safeailab")), ("dflash", ("speculators", "z-lab"))]
)
def test_all_formats_hold_the_same_head(kind, layouts, data, tmp_path):
    """The same steps and seed give the same weights; every layout gives them back bit for bit, and drafts the same."""
    for layout in ("gguf", *layouts):
        assert cli.run_command(words(kind, tmp_path / layout, "--data", data, "--steps", 2, "--format", layout)) == 0
    first, *others = (load(tmp_path / layout, weights=False) for layout in ("gguf", *layouts))
    draft = {
        layout: draft_file(
            tiny_gguf(0, layers=4), f"{kind}={tmp_path / layout}", range(3, 40), 3, "auto", tmp_path / "d"
        )
        for layout in ("gguf", *layouts)
    }

    for other in others:
        assert other.names == first.names
        assert all(torch.equal(other.tensor(n), first.tensor(n)) for n in first.names)
        assert other.head.sources(4) == first.head.sources(4)
    for layout in layouts:
        assert draft[layout]["tokens"].tolist() == draft["gguf"]["tokens"].tolist()
        assert torch.equal(draft[layout]["logits"], draft["gguf"]["logits"])


@pytest.mark.parametrize("stored", ["f16", "bf16", "q8_0"])
def test_smaller_types_are_read_back(stored, data, tmp_path):
    out = tmp_path / "h.gguf"
    assert cli.run_command(words("eagle3", out, "--data", data, "--steps", 1, "--type", stored)) == 0

    assert load(out, weights=False).tensor("fc.weight").shape == (32, 96)


def test_a_reduced_vocabulary_says_what_it_covers(data, tmp_path, capsys):
    out = tmp_path / "h.gguf"
    assert cli.run_command(words("eagle3", out, "--data", data, "--steps", 1, "--draft-vocab", 64)) == 0

    assert re.search(r"64 of 300 tokens can be drafted: \d+\.\d% of the texts", capsys.readouterr().err)
    assert load(out, weights=False).head.d2t.shape == (64,)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [[], ["--draft-vocab", 64]], ids=["whole", "reduced"])
def test_a_head_starts_from_another_one(kind, rows, data, tmp_path):
    """After one step at a learning rate near 0 it equals that head; rows of other tokens are the target's."""
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    assert cli.run_command(words(kind, first, "--data", data, "--steps", 3, *rows)) == 0
    more = ["--from", first, "--lr", 1e-12]
    assert cli.run_command(words(kind, second, "--data", data, "--steps", 1, *more)) == 0
    one, two = (load(path, weights=False) for path in (first, second))

    for name in one.names:
        if name in two.names and name != "output.weight":
            assert torch.allclose(one.tensor(name), two.tensor(name), atol=1e-6)
    if kind == "eagle3":
        ids = torch.arange(300) if one.head.d2t is None else one.head.d2t
        assert torch.allclose(one.tensor("output.weight"), two.tensor("output.weight")[ids], atol=1e-6)
        others = torch.ones(300, dtype=torch.bool).index_fill_(0, ids, False)
        own = load(tiny_gguf(0, layers=4)).tensor("output.weight").float()
        assert torch.allclose(two.tensor("output.weight")[others], own[others], atol=1e-6)


def test_a_head_of_another_size_or_source_is_refused(data, tmp_path, capsys):
    first = tmp_path / "first.gguf"
    assert cli.run_command(words("eagle3", first, "--data", data, "--steps", 1)) == 0
    for more, message in ((["--ff", 32], "ffn_gate.weight is of (32, 32)"), (["--sources", "1,2,3"], "reads hidden")):
        assert cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", data, "--from", first, *more)) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_answered_by_the_target_first(kind, tmp_path, capsys):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"def add_{i}(a, b):\n"}) + "\n" for i in range(6)), "utf-8")
    out = tmp_path / "h.gguf"

    assert cli.run_command(words(kind, out, "--data", path, "--steps", 2)) == 2
    assert "--generate" in capsys.readouterr().err
    assert cli.run_command(words(kind, out, "--data", path, "--steps", 2, "--generate", 10)) == 0
    assert "answered 10 of 10 prompts" in capsys.readouterr().err


# interrupted


class Stop:
    """Ctrl-C after ``after`` steps."""

    def __init__(self, after):
        self.after = after

    def __call__(self, log, progress, result):
        if result is None and log.step == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_leaves_a_checkpoint_and_the_training_resumes(kind, data, tmp_path, capsys, monkeypatch):
    """There is no file at --out; the resumed training gives the same loss and the same head."""
    options = ["--data", data, "--steps", 6, "--generate", 4]
    assert cli.run_command(words(kind, tmp_path / "whole.gguf", *options)) == 0
    whole = loss(capsys.readouterr().out)
    with monkeypatch.context() as patch:
        patch.setattr(StepProgress, "__call__", lambda self, *args: Stop(3)(*args))
        assert cli.run_command(words(kind, tmp_path / "broken.gguf", *options)) == 130
    left = sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("broken"))
    error = capsys.readouterr().err
    assert "stopped at step 3\nstopped: run the same command again to continue from the files next to" in error
    assert cli.run_command(words(kind, tmp_path / "broken.gguf", *options)) == 0

    assert [name.split("-")[0] for name in left] == [
        "broken.gguf.answers", "broken.gguf.checkpoint", "broken.gguf.held", "broken.gguf.states",
    ]  # fmt: skip
    assert abs(loss(capsys.readouterr().out) - whole) < 1e-6
    assert (tmp_path / "broken.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


@pytest.mark.parametrize(
    "during", ["training.training_progress.AnswerProgress.__call__", "init.least_squares.fit_student"]
)
def test_ctrl_c_before_the_first_step_says_how_to_continue(during, data, tmp_path, capsys, monkeypatch):
    options = ["--data", data, "--steps", 2, "--generate", 4]
    with monkeypatch.context() as patch:
        patch.setattr(f"spec_train.{during}", lambda *_: Stop(0)(Log(), 0.0, None))
        assert cli.run_command(words("eagle3", tmp_path / "h.gguf", *options)) == 130
    assert "stopped: run the same command again" in capsys.readouterr().err
    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", *options)) == 0


@pytest.mark.release
@pytest.mark.slow
def test_a_killed_training_resumes(data, tmp_path, capsys):
    """SIGKILL, in a process of its own, after a checkpoint was written."""
    out = tmp_path / "h.gguf"
    options = ["--data", data, "--steps", 40]
    assert cli.run_command(words("eagle3", tmp_path / "w.gguf", *options)) == 0
    whole = loss(capsys.readouterr().out)
    killed = subprocess.Popen(spec(words("eagle3", out, *options)), stderr=subprocess.DEVNULL)
    while not (out.with_name("h.gguf.checkpoint")).exists() and killed.poll() is None:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not out.exists()
    assert out.with_name("h.gguf.checkpoint").exists()
    assert cli.run_command(words("eagle3", out, *options)) == 0

    assert abs(loss(capsys.readouterr().out) - whole) < 1e-6


def spec(argv):
    """The program, with a checkpoint after every step."""
    patch = "from spec_train.training import trainer; trainer.CHECKPOINT_SECONDS = 0.0"
    source = f"{patch}; from spec_cli.main import main; main()"
    return [sys.executable, "-c", source, *argv]


def test_a_checkpoint_of_something_else_is_refused(data, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(StepProgress, "__call__", lambda self, *args: Stop(1)(*args))
        cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", data, "--steps", 4))

    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", data, "--steps", 4, "--seed", 1)) == 2
    assert "is of another head, other data or other options" in capsys.readouterr().err
    (tmp_path / "h.gguf.checkpoint").write_bytes(b"damaged")
    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", data, "--steps", 4)) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_longer_training_continues_from_a_checkpoint(data, tmp_path, capsys, monkeypatch):
    """The duration is not part of the fingerprint of a checkpoint."""
    with monkeypatch.context() as patch:
        patch.setattr(StepProgress, "__call__", lambda self, *args: Stop(3)(*args))
        cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", data, "--steps", 4))

    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", data, "--steps", 8)) == 0
    assert "8 steps" in capsys.readouterr().out


# refused


BAD = {
    "empty": ("", "has no texts"),
    "no JSON": ("not json\n", "line 1: not a JSON object"),
    "a list": ("[1]\n", "line 1: not a JSON object"),
    "no text": ('{"text": "a"}\n{"body": "b"}\n', "line 2: no text and no prompt"),
    "messages without a role": ('{"messages": [{"content": "x"}]}\n', "line 1"),
    "no answer": ('{"messages": [{"role": "user", "content": "x"}], "answer": 5}\n', "line 1: no text and no prompt"),
    "a number": ('{"text": 5}\n', "line 1: no text and no prompt"),
    "one text": ('{"text": "abc"}\n', "there is one text"),
    "too short": ('{"text": "a"}\n' * 5, "the longest text has"),
    "nested": ("[" * 100_000, "not a JSON object"),
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_data_are_refused(name, tmp_path, capsys):
    content, message = BAD[name]
    path = tmp_path / "bad.jsonl"
    path.write_text(content, "utf-8")

    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", path, "--steps", 1)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "h.gguf").exists()


def test_a_missing_file_and_a_model_without_texts_are_refused(tmp_path, capsys):
    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", "--data", tmp_path / "none.jsonl")) == 2
    assert "No such file" in capsys.readouterr().err
    assert cli.run_command(words("eagle3", tmp_path / "h.gguf")) == 2
    assert "provides no training text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--steps", "1", "--minutes", "1"], "were both passed"),
        (["--type", "q8_0", "--format", "safeailab"], "q8_0 is a type of GGUF"),
        (["--sources", "1,2,9"], "hidden states 0 to 4"),
        (["--sources", "a"], "--sources 'a' must be hidden states"),
        (["--sources", ","], "hidden states 0 to 4"),
    ],
)
def test_options_that_contradict_are_refused(more, message, data, tmp_path, capsys):
    assert cli.run_command(words("eagle3", tmp_path / "h", "--data", data, *more)) == 2
    assert message in capsys.readouterr().err


def test_a_format_whose_package_is_missing_is_refused_before_the_model_is_read(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "gguf", None)

    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", model="nowhere.gguf")) == 2
    assert "pip install 'spec-core[train]'" in capsys.readouterr().err
    assert cli.run_command(words("eagle3", tmp_path / "h", "--format", "safeailab", model="nowhere.gguf")) == 2
    assert "gguf, which is not installed" not in capsys.readouterr().err


def test_an_output_that_exists_or_cannot_be_written_is_refused_before_the_model_is_read(tmp_path, capsys):
    existing = tmp_path / "taken.gguf"
    existing.write_text("mine")

    assert cli.run_command(words("eagle3", existing, model="nowhere.gguf")) == 2
    assert "exists" in capsys.readouterr().err
    assert cli.run_command(words("eagle3", existing / "h.gguf", model="nowhere.gguf")) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert existing.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["taken.gguf"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere")], ids=["pipe", "link to nowhere"])
def test_an_output_that_is_no_regular_file_is_refused_too(make, tmp_path, capsys):
    """A head is put in place by a rename, which would replace it."""
    make(tmp_path / "h.gguf")
    kind = (tmp_path / "h.gguf").lstat().st_mode

    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", model="nowhere.gguf")) == 2
    assert "exists" in capsys.readouterr().err
    assert (tmp_path / "h.gguf").lstat().st_mode == kind


def test_two_trainings_do_not_share_an_output(data, tmp_path, capsys):
    """Each would write over the other's checkpoint, and the slower one over the head of the faster one."""
    out = tmp_path / "new" / "h.gguf"
    with output.lock(out):
        assert cli.run_command(words("eagle3", out, "--data", data, "--steps", 1)) == 2
        assert "another training run writes to" in capsys.readouterr().err
    assert cli.run_command(words("eagle3", out, "--data", data, "--steps", 1)) == 0
    assert [p.name for p in out.parent.iterdir()] == ["h.gguf"]


def test_a_partly_written_directory_is_replaced(data, tmp_path):
    (tmp_path / "head.part").mkdir()

    assert (
        cli.run_command(words("eagle3", tmp_path / "head", "--data", data, "--steps", 1, "--format", "speculators"))
        == 0
    )
    assert beside_data(tmp_path) == ["head"]


@pytest.mark.parametrize("steps", [1, 4])
def test_a_head_with_nan_weights_is_not_written(steps, data, tmp_path, capsys, monkeypatch):
    """After the last step only the weights show it."""
    out = tmp_path / "h.gguf"
    monkeypatch.setattr(trainer, "optimizer_step", lambda head, _: [p.data.fill_(math.nan) for p in head.parameters()])

    assert cli.run_command(words("eagle3", out, "--data", data, "--steps", steps, "--lr", 100)) == 2
    error = capsys.readouterr().err
    assert "after 1 steps the loss or a weight became NaN or infinite" in error
    assert "pass a smaller --lr than 100" in error
    assert not out.exists()


@pytest.fixture
def full():
    """No file can grow beyond 30,000 bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("layout", ["gguf", "speculators"])
def test_a_full_disk_ends_clearly_and_leaves_nothing_under_the_final_name(layout, data, tmp_path, capsys, full):
    out = tmp_path / "head"

    assert cli.run_command(words("eagle3", out, "--data", data, "--steps", 1, "--format", layout)) == 2
    error = capsys.readouterr().err
    assert "head cannot be written" in error
    assert "free some disk space" in error
    assert beside_data(tmp_path) == ["held", "states"]


def beside_data(folder) -> list[str]:
    """The intermediate files of a training."""
    return sorted(p.name.removeprefix("head.").split("-")[0] for p in folder.iterdir() if p.name != "texts.jsonl")


def test_a_full_disk_at_a_checkpoint_ends_clearly(data, tmp_path, capsys, full, monkeypatch):
    monkeypatch.setattr(StepProgress, "__call__", lambda self, *args: Stop(1)(*args))

    assert cli.run_command(words("eagle3", tmp_path / "head", "--data", data, "--steps", 2)) == 2
    assert "head.checkpoint cannot be written" in capsys.readouterr().err
    assert beside_data(tmp_path) == ["held", "states"]


# shown


def test_the_curve_and_the_time_left_are_readable():
    assert curve([4.0, 3.0, 2.0, 1.0], 4) == "4.000 █▆▃▁▁ 1.000"
    assert curve([]) == "no steps"
    assert clock(61.4) == "1 min 01 s"


@pytest.mark.parametrize("temperatures", ["", "a", "0,,1", "-1", "inf", "nan"])
def test_invalid_temperatures_are_refused(temperatures, data, tmp_path, capsys):
    options = ["--data", data, "--steps", 1, "--generate", 4, f"--temperature={temperatures}"]

    assert cli.run_command(words("eagle3", tmp_path / "h.gguf", *options)) == 2
    assert "is not a list of numbers of at least 0" in capsys.readouterr().err


def test_losses_and_evaluations_are_logged_as_json_lines(data, tmp_path, monkeypatch, capsys):
    """An interrupted training continues its log: every step once, in order."""
    log, out = tmp_path / "losses.jsonl", tmp_path / "head.gguf"
    command = words("dflash", out, "--data", data, "--steps", 6, "--log", log)
    assert cli.run_command(command) == 0
    whole = log.read_text()
    out.unlink()

    real, steps = LossLog.__call__, []

    def interrupt(self, loss, progress, result):
        real(self, loss, progress, result)
        steps.append(loss.step)
        if len(steps) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LossLog, "__call__", interrupt)
        assert cli.run_command(command) == 130
    with log.open("a") as file:
        file.write(json.dumps({"step": 99, "loss": 1.0}) + '\n{"step": 5, "lo')
    assert cli.run_command(command) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    entries = [json.loads(line) for line in whole.splitlines()]
    timeless = [{k: v for k, v in line.items() if k != "seconds"} for line in lines]

    assert timeless == [{k: v for k, v in line.items() if k != "seconds"} for line in entries]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert all(line["tokens_per_step"] >= 1 for line in lines if "loss" not in line)
    assert "of training" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_an_error(data, tmp_path, capsys):
    log = tmp_path / "nowhere" / "losses.jsonl"

    assert cli.run_command(words("dflash", tmp_path / "head.gguf", "--data", data, "--steps", 2, "--log", log)) == 2
    assert str(log) in capsys.readouterr().err
