"""``spec train dspark``: what is added to a trained DFlash head, and what stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from spec_cli import main as cli
from spec_kernels.layer_executor import executor_of
from spec_kernels.model.head import spread_logits, tokens_of
from spec_methods.block_drafters.sequential import sequential_part
from spec_train.data.samples import Sample, Teacher, TextSample, TopK
from spec_train.heads import dspark_student
from spec_train.heads.dflash_student import DFlashStudent
from spec_train.heads.dspark import CONFIDENCE, MARKOV
from spec_train.heads.dspark_student import DSparkStudent, first_misses_and_before
from spec_train.heads.export.trained import Trained
from spec_train.heads.export.write import write_head
from spec_train.heads.vocabulary import Vocabulary
from spec_train.init.from_dflash import read_base
from spec_train.options import DSparkOptions
from spec_train.training.evaluation import Evaluation
from spec_train.training.trainer import Trainer
from spec_train.training.training_progress import StepProgress

from spec_core import load
from spec_core.errors import UsageError
from tests.methods.drafted import draft_file
from tests.methods.heads import head_file, sliding_file, spark_file, tiny
from tests.support.small_heads import SOURCES
from tests.support.small_models import tiny_gguf

RANK = 5
ADDED = {*MARKOV, *CONFIDENCE}


@pytest.fixture
def data(tmp_path) -> Path:
    path = tmp_path / "texts.jsonl"
    text = "def add_{0}(a, b):\n    return a + b + {0}\nthe quick brown fox jumps over {0} dogs\n"
    path.write_text("".join(json.dumps({"text": text.format(i) * 2}) + "\n" for i in range(12)), "utf-8")
    return path


def words(out, *more, head=None) -> list[str]:
    small = ["--length", "40", "--batch", "2", "--answer", "12", "--held-out", "2", "--threads", "1", "--rank", "5"]
    words = ["train", "dspark", "-m", tiny_gguf(0, layers=4), "--head", head or head_file("dflash", "dense")]
    return [*map(str, words), "--out", str(out), *small, *map(str, more)]


def student_of(rows: int | None = None, file: Path | None = None) -> DSparkStudent:
    """An untrained head. rows: of its logits, where it drafts part of the vocabulary."""
    options = DSparkOptions(None, str(file or head_file("dflash", "dense", rows)), RANK)
    return read_base(options, tiny("dense")).new_student(tiny("dense"), 0)


def sample(start: int = 0, length: int = 24) -> Sample:
    tokens = tuple(np.random.default_rng(1).integers(0, 299, length).tolist())
    return Teacher(tiny("dense"), SOURCES["dflash"]).sample(TextSample(tokens, start))


@torch.no_grad()
def set_randomly(student: DSparkStudent) -> None:
    """Markov matrices and a confidence head that matter."""
    torch.manual_seed(3)
    for name in ADDED:
        student.head[name].normal_()


# one step


@pytest.mark.parametrize("rows", [None, 100])
def test_an_untrained_head_drafts_what_its_base_drafts(rows):
    student, text = student_of(rows), sample()
    alone = Vocabulary(student.head, student.vocab.embedding, student.vocab.output, student.vocab.d2t)
    base = DFlashStudent(student.head, alone)

    assert student.accepted_counts(text) == base.accepted_counts(text)


@pytest.mark.parametrize("rows", [None, 100])
def test_training_is_drafting(rows, tmp_path):
    """The corrected logits and the chances of joined rows are those of the method that reads the written head."""
    student, text = student_of(rows), sample()
    set_randomly(student)
    d2t = student.vocab.d2t
    write_head(
        Trained(student.head.shape, student.head.tensors_by_name(), d2t, "x"),
        tiny("dense"),
        tmp_path / "h.gguf",
        "gguf",
        "f32",
    )
    file = load(tmp_path / "h.gguf", weights=False)
    target = load(tiny_gguf(0, layers=4), dtype="float32", kernels="reference")
    sequential = sequential_part(file, executor_of(target))
    states = student.states([text], [torch.tensor([6])])[0]
    before = text.tokens[6:9]
    rows_of_logits = student.head.join_rows(states, before)
    logits = rows_of_logits @ student.vocab.matrix.T
    sure = torch.sigmoid(student.head.confidence(rows_of_logits)).detach()
    matrix = (
        load(tiny_gguf(0, layers=4)).tensor("output.weight").float()
        if rows is None
        else file.tensor("output.weight").float()
    )
    drafted = sequential.follow([(int(t), state @ matrix.T, state) for t, state in zip(before, states, strict=True)])

    whole = spread_logits(logits, tokens_of(file.head, "cpu"), 300)
    for row, chance, expected in zip(whole, sure, drafted, strict=True):
        finite = torch.isfinite(row)
        assert torch.allclose(row[finite], expected.logits[finite], atol=1e-4)
        assert torch.equal(finite, torch.isfinite(expected.logits))
        assert float(chance) == pytest.approx(expected.chance, abs=1e-5)


def test_a_loss_trains_the_added_tensors_alone():
    student = student_of()
    set_randomly(student)
    student.loss([sample(4), sample(0, 16)], np.random.default_rng(0)).backward()
    moved = {name.replace("/", ".") for name, p in student.head.named_parameters() if p.grad is not None}

    assert moved == ADDED
    assert all(student.head[name].grad.abs().sum() > 0 for name in ADDED)


def test_the_confidence_does_not_train_the_markov_matrices(monkeypatch):
    """Their gradients are those of the drafts alone."""
    gradients = {}
    for factor in (0.0, 1.0):
        student = student_of()
        set_randomly(student)
        real = student.head.confidence
        monkeypatch.setattr(student.head, "confidence", lambda rows, real=real, factor=factor: real(rows) * factor)
        student.loss([sample()], np.random.default_rng(0)).backward()
        gradients[factor] = [student.head[name].grad for name in MARKOV]

    assert all(torch.equal(a, b) for a, b in zip(gradients[0.0], gradients[1.0], strict=True))


def test_confidence_is_trained_on_the_rows_that_a_target_tests():
    hits = torch.tensor([[True, True, False, True], [False, True, True, True], [True, True, True, True]])

    assert first_misses_and_before(hits).tolist() == [
        [True, True, True, False], [True, False, False, False], [True, True, True, True],
    ]  # fmt: skip


def test_rows_after_the_end_of_a_text_are_not_tested(monkeypatch):
    """The blocks at its last two known tokens have two rows and one row in the text, if all drafts are hits."""
    student, text, counts = student_of(), sample(0, 8), []
    monkeypatch.setattr(DSparkStudent, "hits", lambda self, states, tokens: torch.ones_like(tokens[:, 1:]) > 0)
    monkeypatch.setattr(DSparkStudent, "_anchors", lambda self, x, rng: torch.tensor([5, 6]))
    monkeypatch.setattr(
        dspark_student, "binary_cross_entropy_with_logits", lambda sure, hits: counts.append(len(hits)) or sure.sum()
    )
    student.loss([text], np.random.default_rng(0))

    assert counts == [3]


def test_training_corrects_a_head_and_says_how_sure_it_is():
    """Overfitted to one text: its drafts are longer, and its chances are the share that is accepted."""
    student = student_of()
    tokens = torch.from_numpy(np.random.default_rng(0).permutation(299)[:24])
    seen = Teacher(tiny("dense"), SOURCES["dflash"]).sample(TextSample(tuple(tokens.tolist())))
    text = Sample(tokens, seen.features, TopK.of(30.0 * torch.nn.functional.one_hot(tokens.roll(-1), 300).float()), 4)
    first = Evaluation([text]).run(student).tokens_per_step
    base = {name: tensor.clone() for name, tensor in student.head.tensors_by_name().items()}
    optimizer = torch.optim.Adam([p for p in student.head.parameters() if p.requires_grad], 3e-2)
    for i in range(150):
        student.loss([text], np.random.default_rng(i)).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = student.head.tensors_by_name()

    assert first < 1.5
    assert Evaluation([text]).run(student).tokens_per_step > 2.5
    assert all(torch.equal(base[name], after[name]) != (name in ADDED) for name in base)
    anchors = torch.arange(3, 20)
    states, of_text = student.states([text], [anchors]), student.block_tokens(text, anchors)
    hits = student.hits(states, of_text)
    sure = torch.sigmoid(student.head.confidence(student._rows(states, of_text))).view(hits.shape).detach()
    tested = first_misses_and_before(hits) & (of_text[:, 1:] >= 0)
    expected, accepted = sure[tested].mean(), hits[tested].float().mean()
    assert float(expected) == pytest.approx(float(accepted), abs=0.1)


# the command


@pytest.mark.parametrize("layout", ["gguf", "speculators"])
def test_a_head_is_trained_written_and_fits(layout, data, tmp_path, capsys):
    out = tmp_path / "head"
    assert cli.run_command(words(out, "--data", data, "--steps", 4, "--format", layout)) == 0
    printed = capsys.readouterr()
    base, file = load(head_file("dflash", "dense"), weights=False), load(out, weights=False)

    assert "tokens per step, accepted by position" in printed.out
    assert file.head.kind == "dspark" and not file.head.anchor
    assert (file.head.markov, file.head.confidence) == (RANK, 32 + RANK)
    assert file.head.sources(4) == base.head.sources(4)
    assert file.misfit(tiny("dense")) is None
    assert file.names == base.names | ADDED
    assert all(torch.equal(file.tensor(name), base.tensor(name)) for name in base.names)
    assert all(file.tensor(name).abs().sum() > 0 for name in ADDED)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["head", "texts.jsonl"]


def test_a_directory_has_the_published_layout(data, tmp_path):
    assert cli.run_command(words(tmp_path / "head", "--data", data, "--steps", 1, "--format", "speculators")) == 0
    config = json.loads((tmp_path / "head" / "config.json").read_text("utf-8"))

    assert config["architectures"] == ["DSparkSpeculator"]
    assert config["speculators_model_type"] == config["speculators_config"]["algorithm"] == "dspark"
    assert (config["markov_rank"], config["markov_head_type"], config["sample_from_anchor"]) == (RANK, "vanilla", False)
    assert config["enable_confidence_head"] is config["confidence_head_with_markov"] is True


def test_both_formats_hold_the_same_head(data, tmp_path):
    drafts = {}
    for layout in ("gguf", "speculators"):
        assert cli.run_command(words(tmp_path / layout, "--data", data, "--steps", 2, "--format", layout)) == 0
        method = f"dspark={tmp_path / layout}"
        drafts[layout] = draft_file(tiny_gguf(0, layers=4), method, range(3, 40), 3, "auto", tmp_path / "d")

    assert drafts["gguf"]["tokens"].tolist() == drafts["speculators"]["tokens"].tolist()
    assert torch.equal(drafts["gguf"]["logits"], drafts["speculators"]["logits"])


def test_a_reduced_vocabulary_is_that_of_the_base(data, tmp_path):
    base = head_file("dflash", "dense", 100)
    assert cli.run_command(words(tmp_path / "h.gguf", "--data", data, "--steps", 2, head=base)) == 0
    file = load(tmp_path / "h.gguf", weights=False)

    assert torch.equal(file.head.d2t, load(base, weights=False).head.d2t)
    assert file.tensor("markov_w1.weight").shape == (300, RANK)
    assert file.tensor("markov_w2.weight").shape == (100, RANK)


def test_a_head_starts_from_another_one(data, tmp_path):
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    assert cli.run_command(words(first, "--data", data, "--steps", 3)) == 0
    assert cli.run_command(words(second, "--data", data, "--steps", 1, "--from", first, "--lr", 1e-12)) == 0
    one, two = (load(path, weights=False) for path in (first, second))

    assert all(torch.allclose(one.tensor(name), two.tensor(name), atol=1e-6) for name in one.names)


def test_ctrl_c_leaves_a_checkpoint_and_the_training_resumes(data, tmp_path, monkeypatch):
    options = ["--data", data, "--steps", 6, "--generate", 4]
    assert cli.run_command(words(tmp_path / "whole.gguf", *options)) == 0

    def stop(self, log, progress, result):
        if result is None and log.step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StepProgress, "__call__", stop)
        assert cli.run_command(words(tmp_path / "broken.gguf", *options)) == 130
    assert (tmp_path / "broken.gguf.checkpoint").exists()
    assert cli.run_command(words(tmp_path / "broken.gguf", *options)) == 0

    assert (tmp_path / "broken.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_a_checkpoint_of_another_base_is_refused(data, tmp_path, capsys, monkeypatch):
    def stop(self, *_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train", stop)
        assert cli.run_command(words(tmp_path / "h.gguf", "--data", data, "--steps", 4)) == 130
    other = tmp_path / "other.gguf"
    other.write_bytes(head_file("dflash", "dense").read_bytes())

    assert cli.run_command(words(tmp_path / "h.gguf", "--data", data, "--steps", 4, head=other)) == 2
    assert "is of another head, other data or other options" in capsys.readouterr().err


# refused


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda: head_file("eagle3", "dense"), "is a head of kind eagle3"),
        (lambda: spark_file("dense"), "is a head of kind dspark"),
        (lambda: sliding_file("dense"), "its layers have windows, which heads of spec train do not have"),
        (lambda: tiny_gguf(0, layers=4), "is no draft head"),
        (lambda: "zoo:pico-dflash", "this dflash head reads hidden states of width 192"),
        (lambda: "nowhere.gguf", "nowhere.gguf"),
    ],
)  # fmt: skip
def test_another_head_is_refused_by_name(head, message, data, tmp_path, capsys):
    assert cli.run_command(words(tmp_path / "h.gguf", "--data", data, head=head())) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_model_without_a_head_is_told_to_name_one():
    with pytest.raises(UsageError, match="has no DFlash head, which a DSpark head extends") as refused:
        read_base(DSparkOptions(None, None, RANK), tiny("dense"))
    assert "spec train dflash" in refused.value.hint


def test_the_head_of_a_zoo_model_needs_no_name():
    target = load("zoo:pico", weights=False)

    assert read_base(DSparkOptions(None, None, RANK), target).sources == (1, 6, 10)
