"""The target of llama.cpp: conformance, methods, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest
from spec_zoo import path

from spec_core import Refused, Run, UsageError, load
from spec_core.testing import TargetConformance
from tests.support.small_models import tiny_gguf, tiny_hybrid

try:
    from spec_engines.llamacpp import ENGINE, VERSION, check_installed

    check_installed()
except UsageError as missing:
    pytest.skip(missing.reason, allow_module_level=True)

from spec_engines.llamacpp import loading, probe


def target(file, **options):
    return load(f"llamacpp:{file}", **{"threads": 1, "device": "cpu"} | options)


ROUNDING = {"dense": 5e-3, "hybrid": 2e-2}
"""In a forward of many rows flash attention computes in float16. With quantised weights, rows are rounded to 8 bits
besides, which enlarges such differences a hundred times: the kit runs on float32 weights."""


class TestDense(TargetConformance):
    tolerance = batch_tolerance = ROUNDING["dense"]

    def make(self):
        return target(tiny_gguf(context=128, kind="F32"), cache_dtype="float32")


class TestHybrid(TargetConformance):
    """Recurrent state is rolled back by llama.cpp."""

    tolerance = batch_tolerance = ROUNDING["hybrid"]

    def make(self):
        return target(tiny_hybrid(context=128, kind="F32"), cache_dtype="float32")


class TestHybridWithoutSnapshots(TestHybrid):
    """Recurrent state is copied, and accepted drafts are evaluated again."""

    @pytest.fixture(autouse=True)
    def none(self, monkeypatch):
        monkeypatch.setattr("spec_engines.llamacpp.binding.SNAPSHOTS", 0)


@pytest.mark.parametrize("check", [name for name in ENGINE.skipped if "exact" not in name])
def test_checks_that_are_listed_as_skipped_are_skipped(check):
    with pytest.raises(pytest.skip.Exception):
        getattr(TestDense(), check)()


class OfTheZoo(TargetConformance):
    """Files with weights of 8 bits, as they are used."""

    file = "pico"

    def make(self):
        return target(path(self.file), context=128)


@pytest.mark.parametrize("file", ["pico", "pico-hybrid"])
def test_rows_of_drafts_have_equal_bits_where_the_target_says_so(file):
    """Measured when the model is loaded; the kit tests longer drafts. Skipped where they are not equal."""
    kit = OfTheZoo()
    kit.file = file
    kit.test_rows_are_as_exact_as_declared()


@pytest.mark.parametrize("hurt, message", [(0, ""), (1e-6, "a row before or in a draft of 1 differs by")])
def test_the_probe_finds_rows_that_depend_on_their_draft(monkeypatch, hurt, message):
    drafted = probe._draft_rows
    monkeypatch.setattr(probe, "_draft_rows", lambda *args: probe._alone(*args[:2])[: 1 + args[2]] + hurt)
    loaded = target(tiny_gguf(context=128))

    assert loaded.info.exact == ("no" if hurt else "chains")
    assert loaded.info.exact_why.startswith(message)
    assert drafted(loaded, [1] * 40, 3).shape == (4, loaded.info.vocab)


def test_a_context_too_short_for_the_probe_is_not_called_exact():
    assert (
        target(tiny_gguf(context=128), context=32).info.exactness == "no: not tested, its context has 32 positions only"
    )


METHODS = {
    "ngram": ("pico", ("ngram", {})),
    "suffix": ("pico", ("suffix", {})),
    "recycling": ("pico", ("recycling", {})),
    "draft-model": ("pico", ("draft-model", {"file": "zoo:pico-draft"})),
    "eagle3": ("pico", ("eagle3", {"file": "zoo:pico-eagle3"})),
    "dflash": ("pico", ("dflash", {"file": "zoo:pico-dflash"})),
    "mtp": ("pico-hybrid", ("mtp", {})),
    "recycling on a hybrid": ("pico-hybrid", ("recycling", {})),
}
PROMPTS = ["def add(a, b):\n    return", "one two three one two three one two three one"]
REQUEST = {"max_tokens": 24, "ignore_eos": True}


@cache
def of_the_zoo(file: str):
    return target(path(file))


@cache
def plain(file: str) -> list[list[int]]:
    run = Run(of_the_zoo(file), max_sequences=1)
    return [run.generate(prompt, **REQUEST, seed=i).result.tokens for i, prompt in enumerate(PROMPTS)]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_drafts_and_changes_no_text(name):
    """Texts are compared where rows have equal bits."""
    file, method = METHODS[name]
    run = Run(of_the_zoo(file), [method], max_sequences=1)
    texts = [run.generate(prompt, **REQUEST, seed=i).result.tokens for i, prompt in enumerate(PROMPTS)]

    assert run.stats.report()["accepted"] > 0
    if of_the_zoo(file).info.exact == "chains":
        assert texts == plain(file)


def test_hidden_states_do_not_change_a_text():
    """A context is replaced by one with hidden states, its rows are copied."""
    target, run = of_the_zoo("pico"), None
    for method in ("ngram", ("eagle3", {"file": "zoo:pico-eagle3"})):
        run = Run(target, [method], max_sequences=1)
        assert run.generate(PROMPTS[0], **REQUEST).result.tokens == plain("pico")[0]


def test_several_sequences_do_not_depend_on_each_other():
    run = Run(of_the_zoo("pico"), ["ngram"], max_sequences=2)
    texts = [run.generate(prompt, **REQUEST, seed=i) for i, prompt in enumerate(PROMPTS)]

    assert [generation.result.tokens for generation in texts] == plain("pico")


# refusals


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kernels": "native"}, "kernels=native is not an option"),
        ({"weights": "q8_0"}, "weights=q8_0 is not an option"),
        ({"dtype": "bfloat16"}, "dtype=bfloat16 is not an option"),
        ({"device": "moon"}, "device 'moon' is unknown"),
        ({"cache_dtype": "q1"}, "cache_dtype 'q1' is unknown"),
        ({"context": 1000}, "context 1000 was requested, the model declares 128"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        target(tiny_gguf(context=128), **options)


def test_another_version_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("llama_cpp.__version__", "0.1.0")
    with pytest.raises(UsageError, match=f"llama-cpp-python is 0.1.0, {VERSION} was needed"):
        target(tiny_gguf(context=128))


def test_without_the_binding_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(UsageError, match="llama-cpp-python cannot be imported") as caught:
        target(tiny_gguf(context=128))
    assert "pip install 'spec-core[llamacpp]'" in caught.value.hint


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, -100])
def test_a_damaged_file_is_refused_before_llama_cpp_reads_it(tmp_path, keep, monkeypatch):
    whole = tiny_gguf(context=128).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:keep])
    monkeypatch.setattr("spec_engines.llamacpp.loading.Model", lambda *a, **k: pytest.fail("was read"))
    with pytest.raises(UsageError):
        target(tmp_path / "cut.gguf")


def test_a_known_model_that_lacks_a_tensor_is_refused_before_llama_cpp_reads_it(tmp_path, monkeypatch):
    whole = tiny_gguf(context=128).read_bytes()
    assert whole.count(b"blk.1.ffn_up.weight") == 1
    (tmp_path / "less.gguf").write_bytes(whole.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_uq.weight"))
    monkeypatch.setattr("spec_engines.llamacpp.loading.Model", lambda *a, **k: pytest.fail("was read"))
    with pytest.raises(UsageError, match=r"blk\.1\.ffn_u"):
        target(tmp_path / "less.gguf")


def test_an_architecture_that_only_llama_cpp_knows_is_left_to_it(tmp_path):
    """Here to neither: llama.cpp says so, and the process goes on."""
    whole = tiny_gguf(context=128).read_bytes()
    (tmp_path / "other.gguf").write_bytes(whole.replace(b"qwen3", b"qwenX"))
    with pytest.raises(UsageError, match=r"llama\.cpp cannot load it"):
        target(tmp_path / "other.gguf")


def test_a_draft_head_is_refused():
    with pytest.raises(UsageError, match="this is a draft head, not a model"):
        target(path("pico-eagle3"))


def test_a_run_is_refused_before_weights_are_read(monkeypatch):
    read = loading.Model
    read_nothing = lambda *a, allocate=True, **k: pytest.fail("was read") if allocate else read(*a, allocate=False, **k)
    monkeypatch.setattr("spec_engines.llamacpp.loading.Model", read_nothing)
    with pytest.raises(Refused, match="has no NextN layer"):
        Run(f"llamacpp:{tiny_gguf(context=128)}", ["mtp"], device="cpu")


def test_memory_is_given_back():
    """Contexts of sequences that are gone are freed: each takes megabytes."""
    code = (
        "import resource\nfrom spec_core import load\nfrom spec_core.toolkit import open_sequence\n"
        f"made = load('llamacpp:{tiny_gguf(context=128)}', threads=1, device='cpu')\n"
        "use = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "[open_sequence(made) for _ in range(5)]; before = use()\n"
        "for _ in range(60): open_sequence(made)\n"
        "print(use() - before)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)

    assert int(done.stdout) < 60 * 1024
