"""A model is described once: its operations are built once, and its weights are read from the plan."""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from spec_cli.main import run_command as run_command
from spec_kernels import executors
from spec_kernels.model import build, deferred
from spec_kernels.model.executor import ExecutorRequest
from spec_kernels.model.reference import Reference
from spec_targets.architectures import decoder
from spec_targets.formats.gguf_weights import GgufWeights
from spec_targets.runtime import plan

from spec_core import Run, UsageError, describe, load, prepare
from tests.support.small_models import (
    tiny_deepseek,
    tiny_gemma4,
    tiny_gguf,
    tiny_hybrid,
    tiny_kimi,
    tiny_lfm2,
    tiny_scanned,
)

GENERATE = ["generate", "-m", "zoo:pico", "-p", "def area(", "-n", "2", "--threads", "1"]


@pytest.fixture
def build_counts(monkeypatch):
    """How often operations are build_counts: of whole models, and of other layers' beginnings."""
    counts: Counter[str] = Counter()
    real_decoder, real_builder = decoder._decoder, build.Builder.__init__

    def count_decoder(*args):
        counts["model"] += 1
        return real_decoder(*args)

    def count_builder(self, shape, source, prefix="", layer=0):
        counts["builder"] += not prefix
        real_builder(self, shape, source, prefix, layer)

    monkeypatch.setattr(decoder, "_decoder", count_decoder)
    monkeypatch.setattr(build.Builder, "__init__", count_builder)
    return counts


def test_operations_are_built_once_before_the_first_token(build_counts, capsys):
    assert run_command([*GENERATE, "--method", "eagle3=zoo:pico-eagle3"]) == 0

    assert build_counts == {"model": 1, "builder": 2}, "once for the target, once for the head"


def test_operations_of_a_hybrid_are_built_once(build_counts, capsys):
    assert run_command(["generate", "-m", "zoo:pico-hybrid", "-p", "x", "-n", "2", "--threads", "1"]) == 0

    assert build_counts["model"] == 1


@pytest.mark.parametrize("command", ["generate", "compare", "serve"])
def test_operations_are_built_once_by_every_command(command, build_counts, capsys, tmp_path):
    if command == "serve":
        prepare("zoo:pico", ["ngram"], threads=1).load().close()
    else:
        text = ["-p", "x"] if command == "generate" else ["--limit", "1"]
        assert run_command([command, "-m", "zoo:pico", "--method", "ngram", "-n", "2", "--threads", "1", *text]) == 0

    assert build_counts["model"] == 1


def tiny_granite() -> Path:
    return tiny_scanned("granitehybrid")


def tiny_falcon() -> Path:
    return tiny_scanned("falcon-h1")


def tiny_nemotron() -> Path:
    return tiny_scanned("nemotron_h_moe")


MODELS = [
    tiny_deepseek,
    tiny_gguf,
    tiny_hybrid,
    tiny_lfm2,
    tiny_kimi,
    tiny_gemma4,
    tiny_granite,
    tiny_falcon,
    tiny_nemotron,
]


@pytest.mark.parametrize("model", MODELS, ids=lambda f: f.__name__)
def test_a_plan_has_the_operations_that_values_give(model):
    """Built without values and read later, or built from values: all numbers are equal."""
    described = load(model(), weights=False)
    late = deferred.read_model(described.plan.model).ops
    early = decoder.decoder(described.config, described.weights, described.weights.interleaved)

    assert [type(op) for op in late] == [type(op) for op in early]
    for a, b in zip(late, early, strict=True):
        for name, value in vars(a).items():
            assert equal(value, getattr(b, name)), (a, name)


def equal(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return not isinstance(a, deferred.DeferredTensor) and torch.equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if hasattr(a, "key"):
        return (a.key, a.n, a.k, a.count, a.wide) == (b.key, b.n, b.k, b.count, b.wide)
    return a == b


def test_a_description_reads_no_weight(monkeypatch):
    """Divisors of the rotation, where a file has them, are metadata."""

    monkeypatch.setattr(GgufWeights, "load", lambda *args: pytest.fail("a weight was read"))
    monkeypatch.setattr(GgufWeights, "blocks", lambda *args: pytest.fail("a weight was read"))
    model = describe(tiny_hybrid())
    assert model.target.info.layers and model.target.executor is None
    prepare(model, ["ngram"])


def test_two_runs_share_a_described_model_and_keep_it_only_while_they_use_it(monkeypatch):
    loaded, real = [], plan.load_executor
    monkeypatch.setattr(plan, "load_executor", lambda of: loaded.append(of) or real(of))
    model = describe("zoo:pico", threads=1)
    first, second = prepare(model).load(), prepare(model, ["ngram"]).load()

    assert first.target is second.target and len(loaded) == 1
    assert first.generate("def f(", max_tokens=8).result.tokens == second.generate("def f(", max_tokens=8).result.tokens
    first.close()
    second.close()
    del first, second
    gc.collect()
    Run(model).close()
    assert len(loaded) == 2


def replace(path: Path, other: Path) -> None:
    """Another file under the same name."""
    shutil.copy(other, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def test_a_file_that_was_replaced_is_read_again(tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copy(tiny_gguf(0), path)
    model = describe(path, threads=1)
    replace(path, tiny_gguf(4))
    run = prepare(model).load()

    assert torch.equal(run.target.tensor("token_embd.weight"), load(tiny_gguf(4)).tensor("token_embd.weight"))


@pytest.mark.parametrize("damage", ["truncated", "emptied", "removed", "without its start"])
def test_a_file_that_was_damaged_after_its_description_is_refused(damage, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copy(tiny_gguf(0), path)
    model = describe(path, threads=1)
    data = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.with_suffix(".new").write_bytes(
            {"truncated": data[:-512], "emptied": b"", "without its start": data[8:]}[damage]
        )
        os.replace(path.with_suffix(".new"), path)

    with pytest.raises(UsageError):
        prepare(model, ["ngram"]).load()


def test_a_setting_of_weights_is_checked_when_they_are_read():
    run = Run("zoo:pico", weights="q8_0", threads=1)
    assert "weights q8_0" in run.target.info.kernels
    with pytest.raises(UsageError, match="weights 'q9' is unknown"):
        Run("zoo:pico", weights="q9", threads=1)


class Fourth(Reference):
    """A fourth executor: one class, and one entry of the list."""

    name, device_type = "fourth", "cpu"

    @classmethod
    def problem(cls, model, request):
        return "models of one block do not run here" if model.cached and len(model.cached) < 2 else None

    @classmethod
    def describe_plan(cls, request):
        return "fourth, planned"

    def describe(self):
        return "fourth"

    @classmethod
    def load(cls, model, source, request):
        return cls(model, source, request.dtype, request.device, reason=request.reason)


@pytest.fixture
def fourth(monkeypatch):
    monkeypatch.setattr(executors, "EXECUTORS", [Fourth, *executors.EXECUTORS])


def test_a_fourth_executor_is_one_class_and_one_entry(fourth, capsys):
    assert load("zoo:pico", weights=False).info.kernels == "fourth, planned"
    with Run("zoo:pico", ["eagle3"], threads=1) as run, Run("zoo:pico", kernels="reference", threads=1) as other:
        assert run.target.info.kernels == "fourth" and isinstance(run.target.executor, Fourth)
        texts = [of.generate("def area(", max_tokens=12).result.tokens for of in (run, other)]
        assert texts[0] == texts[1]
    assert run_command([*GENERATE, "-o", "kernels=fourth"]) == 0


def test_a_fourth_executor_refuses_by_name_and_is_passed_over(fourth):
    one_block = tiny_gguf(0, layers=1)
    assert load(one_block, weights=False).info.kernels.startswith(("native", "reference (models of one block"))
    with pytest.raises(UsageError, match="kernels=fourth was requested, but models of one block") as refused:
        load(one_block, weights=False, kernels="fourth")
    assert refused.value.hint == "use kernels=auto, or change that"
    with pytest.raises(UsageError, match="activations=int8 is for native kernels, which are not used here"):
        load("zoo:pico", weights=False, kernels="fourth", activations="int8")


def test_an_unknown_executor_is_refused_with_the_known_ones(fourth):
    with pytest.raises(UsageError, match="kernels 'fith' is unknown") as refused:
        load("zoo:pico", weights=False, kernels="fith")
    assert "fourth" in refused.value.hint


def test_every_kind_says_what_it_needs():
    """A plan of each is positive, and the loaded executor agrees on a row."""
    described = load(tiny_gguf(0), weights=False, threads=1)
    of = described.plan
    for kind in executors.EXECUTORS:
        request = ExecutorRequest(torch.device("cpu"), torch.float32, positions=64)
        stored = [(of.weights.type(name), shape) for name, shape in of.shapes.items()]
        memory = kind.plan(of.model, stored, request)
        assert memory.weights > 0 and memory.row > 0
        assert kind.describe_plan(request).startswith(kind.name)
        assert (memory.step is not None) == (kind.name == "gpu")
