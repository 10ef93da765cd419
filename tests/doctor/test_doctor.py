"""``spec doctor``: the cause of planted faults, healthy heads, and what it writes."""

from __future__ import annotations

import json

import pytest
import torch
from spec_doctor.acceptance import Texts
from spec_doctor.command import doctor
from spec_doctor.diagnosis import ReadingResult, diagnose_head, is_mapped_wrongly
from spec_doctor.fix import write_fixed
from spec_doctor.scores import Difference, Score, acceptance_of, difference_of, score_reading, write_references
from spec_doctor.texts import TEXTS

from spec_core import UsageError, load
from tests.doctor.planted import LAYOUTS, faults_of, plant, write_healthy
from tests.support.small_heads import directory, edit_tensors, tiny_target


@pytest.fixture(scope="module")
def target():
    torch.set_num_threads(1)
    return load("zoo:pico", device="cpu", threads=1)


@pytest.fixture(scope="module", params=list(LAYOUTS))
def healthy(request, tmp_path_factory):
    return write_healthy(request.param, tmp_path_factory.mktemp(request.param))


def examine(path, target):
    file = load(path, weights=False)
    assert file.misfit(target) is None
    return diagnose_head(target, file.fit_to(target), TEXTS, 7, 16)


@pytest.mark.slow
@pytest.mark.release
def test_a_healthy_head_is_not_blamed(healthy, target):
    diagnosis = examine(healthy, target)

    assert diagnosis.cause is None
    assert diagnosis.best.reading is None
    assert diagnosis.whole.first > 0.3


@pytest.mark.slow
@pytest.mark.release
def test_nine_of_ten_planted_faults_are_named(healthy, target):
    faults = faults_of(load(healthy, weights=False).head.kind)
    named = {fault: examine(plant(healthy, fault), target).cause for fault in faults}
    right = [fault for fault, (_, _, cause) in faults.items() if named[fault] == cause]

    assert len(right) >= 0.9 * len(faults), named


@pytest.fixture(scope="module")
def tied_head(tmp_path_factory):
    """A head of blocks whose file has another output matrix."""
    return plant(write_healthy("dflash", tmp_path_factory.mktemp("tied")), "another output matrix")


def call(*words):
    """Exit code of the command."""
    return doctor.main([str(word) for word in words], standalone_mode=False)


def prompts_file(folder):
    lines = [json.dumps({"id": str(i), "prompt": text}) for i, text in enumerate(TEXTS[:3])]
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    return folder / "prompts.jsonl"


@pytest.mark.release
def test_the_command_names_the_cause_and_writes_a_head_that_is_read_rightly(tied_head, tmp_path, capsys):
    prompts, fixed = prompts_file(tmp_path), tmp_path / "fixed"
    words = [tied_head, "-m", "zoo:pico", "--threads", 1, "--prompts", prompts, "--json"]
    assert call(*words, "--fix", fixed) == 1
    result = json.loads(capsys.readouterr().out)

    assert result["cause"] == "tied output"
    assert result["dialect"] == "z-lab" and result["kind"] == "dflash" and result["layers"] == [1, 6, 10]
    assert result["changes"] == {"own_output": False}
    first, *others = result["readings"]
    assert first["name"] == "as its dialect says" and len(others) > 8
    assert {"tested", "accepted", "conditional"} <= set(first)
    assert result["speedup"] >= 1.0 and result["costs"]["step"] > 0
    assert (fixed / "model.safetensors").is_symlink()
    assert call(fixed, "-m", "zoo:pico", "--threads", 1, "--prompts", prompts, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["cause"] is None and "read as spec doctor wrote: own_output False" in again["repairs"]
    assert again["accepted"] == result["accepted"] > 0.5


def test_the_table_shows_every_position_and_the_best_reading(tied_head, tmp_path, capsys):
    assert call(tied_head, "-m", "zoo:pico", "--threads", 1, "--prompts", prompts_file(tmp_path)) == 1
    captured = capsys.readouterr()

    assert "DFlash head of z-lab" in captured.err
    assert "as its dialect says" in captured.out
    assert "best reading: logits by the target's output matrix" in captured.out
    assert "cause: tied output" in captured.out
    assert "times plain decoding" in captured.out or "no gain" in captured.out


@pytest.mark.parametrize(
    ("head", "model", "words"),
    [("zoo:pico", "zoo:pico", "no draft head"), ("zoo:pico-dflash", "zoo:pico-draft", "hidden states")],
)
def test_what_is_no_head_of_the_model_is_refused(head, model, words):
    with pytest.raises(UsageError, match=words):
        call(head, "-m", model)


def test_a_file_or_a_full_folder_is_not_overwritten(tied_head, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        write_fixed(tied_head, tmp_path / "full", {})
    with pytest.raises(UsageError, match="is one file"):
        write_fixed(tied_head / "model.safetensors", tmp_path / "new", {})
    assert (tmp_path / "full" / "kept").read_text() == "mine"


@pytest.mark.parametrize(
    "reading",
    [[], "tied", {"tied": 1}, {"ids": [1]}, {"ids": [1, 2, "3"]}, {"rope_base": -1}, {"rotary": 3}, {"unknown": True}],
)
def test_a_malformed_reading_is_refused(reading, tied_head, tmp_path):
    write_fixed(tied_head, tmp_path / "fixed", {})
    raw = json.loads((tmp_path / "fixed" / "config.json").read_text())
    (tmp_path / "fixed" / "config.json").write_text(json.dumps({**raw, "spec_reading": reading}))

    with pytest.raises(UsageError, match="spec_reading"):
        load(tmp_path / "fixed", weights=False)


def test_scores_of_a_reading_are_those_of_every_position(target):
    """A run that keeps no draft goes through the target's own text."""
    file = load("zoo:pico-eagle3", weights=False).fit_to(target)
    texts = Texts(TEXTS[:2], 6, 2)
    references = write_references(target, texts)
    scores = score_reading(target, file, texts, references)

    assert {at for _, at in scores} == {1, 2, 3, 4, 5} or {at for _, at in scores} == {1, 2, 3, 4}
    assert all(0 <= score.chance <= 2 and score.accepted <= score.tested <= 2 for score in scores.values())
    same = difference_of(scores, scores)
    assert (same.ratio, same.errors, same.accepted, same.accepted_ratio, same.first) == (1.0, 0.0, 0.0, 1.0, 0.0)
    acceptance = acceptance_of(scores, 2)
    assert acceptance.tested[0] == len(scores) and acceptance.tested[1] == acceptance.accepted[0]


def score_pairs(pairs):
    """Scores of drafted tokens, and the target's tokens."""
    scores = {(0, i): Score(0.0, 1, int(a == b), a) for i, (a, b) in enumerate(pairs)}
    return scores, [[b for _, b in pairs]]


def test_a_map_of_another_order_is_seen_in_the_tokens():
    numbers = [i % 20 for i in range(200)]

    assert is_mapped_wrongly(*score_pairs([(n, 19 - n) for n in numbers]))
    assert not is_mapped_wrongly(*score_pairs([(n, n) for n in numbers]))
    assert not is_mapped_wrongly(*score_pairs([(n, (n * 7 + i) % 97) for i, n in enumerate(numbers)]))
    assert not is_mapped_wrongly(*score_pairs([(1, 5)] * 200))


@pytest.mark.parametrize(
    ("ratio", "first", "better"), [(1.1, 0.0, False), (1.19, -0.02, False), (1.21, 0.0, True), (1.1, 0.03, True)]
)
def test_a_reading_that_only_helps_later_tokens_has_to_help_much(ratio, first, better):
    """Heads that trained for seconds go on better in readings that they were not trained in."""
    assert ReadingResult(None, None, Difference(1.4, 16.0, 0.15, 4.4, ratio, first)).is_better == better


@pytest.mark.parametrize("small", [False, True])
def test_norms_are_only_read_plus_1_where_they_are_small(small, tmp_path):
    path = directory(tmp_path, "dflash", "z-lab")
    edit_tensors(
        path, lambda named: named.update({n: t - int(small) for n, t in named.items() if n.endswith("norm.weight")})
    )
    target = tiny_target(weights=False)
    names = [reading.name for reading in load(path, weights=False).readings(target)]

    assert ("norms stored without 1" in names) == small
