"""Vocabularies are read in C as in Python, and only by who encodes a text."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import spec_targets.formats.native
from spec_cli.main import run_command
from spec_targets.formats.gguf import open_gguf
from spec_targets.formats.native import module
from spec_targets.formats.numbers import Numbers
from spec_targets.formats.texts import Texts
from spec_targets.tokenizer import gguf_vocabulary, merges

from spec_core import Run, UsageError, load
from tests.core.test_choice_sanitized import FLAGS, SANITIZE, runtime
from tests.native.compiled import ROOT, key, once, texts
from tests.support.small_models import tiny_gguf
from tests.support.vocabularies import check_listed, check_scored, check_stored

SOURCES = Path(spec_targets.formats.native.__file__).parent
SCRIPT = """
import importlib.util, sys
from spec_targets.formats import native
spec = importlib.util.spec_from_file_location("spec_targets.formats.native._vocabulary", sys.argv[1])
native.module = importlib.util.module_from_spec(spec)
from tests.support.vocabularies import check_all
check_all(0, 12)
"""
compiled = pytest.mark.skipif(module is None, reason="needs the extension")


@compiled
@pytest.mark.parametrize("seeds", [30, pytest.param(2000, marks=pytest.mark.release)])
@pytest.mark.parametrize("check", [check_scored, check_listed, check_stored])
def test_c_reads_a_random_vocabulary_as_python_does(check, seeds):
    for seed in range(seeds):
        check(seed)


@compiled
def test_merges_that_never_happen_are_left_out():
    tokens = ["a", "b", "ab", "ba", "aba", "abab"]
    order = [float(-i) for i in range(len(tokens))]
    ids = {token: i for i, token in enumerate(tokens)}
    merged = bytes(len(token) > 1 for token in tokens)

    assert list(merges.all_scored_merges(tokens, ids, order, merged)) == [
        *[("a", "b"), ("b", "a"), ("ab", "a"), ("a", "ba")],
        *[("aba", "b"), ("ab", "ab")],
    ]
    pairs = merges.scored_merges(tokens, ids, order, merged, "?")
    assert list(pairs) == [("a", "b"), ("b", "a"), ("ab", "a"), ("ab", "ab")]
    assert pairs[2] == ("ab", "a") and list(pairs[2:]) == list(pairs)[2:] and len(pairs) == 4


@compiled
@pytest.mark.slow
def test_no_sanitizer_complains_about_a_vocabulary():
    if shutil.which("gcc") is None or not all(os.path.isabs(runtime(f"lib{name}.so")) for name in ("asan", "ubsan")):
        pytest.skip("no gcc with sanitizers")
    sources = sorted(map(str, SOURCES.glob("*.c")))
    command = ["gcc", *FLAGS, *SANITIZE, f"-I{sysconfig.get_paths()['include']}", *sources]
    compile_to = lambda path: subprocess.run([*command, "-o", path], check=True)
    built = once("vocabulary_sanitized", f"{key(command, set(texts(SOURCES)))}.so", compile_to)
    environment = os.environ | {
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(built)], env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-3000:]


def test_without_the_extension_the_same_file_is_read(monkeypatch):
    known = load("zoo:pico", weights=False).tokenizer
    ids = known.encode("def area(width, height):")
    for place in ("formats.gguf", "formats.texts", "tokenizer.merges"):
        monkeypatch.setattr(f"spec_targets.{place}.module", None)
    file = open_gguf(known.gguf_keys["tokenizer.ggml.tokens"] and load("zoo:pico", weights=False).info.file)
    plain = gguf_vocabulary.from_gguf(file.metadata)

    assert plain.encode("def area(width, height):") == ids
    assert plain.identity == known.identity


def test_arrays_of_a_large_vocabulary_stay_in_the_file(monkeypatch):
    monkeypatch.setattr("spec_targets.formats.gguf.LISTED_MAX", 64)
    file = open_gguf(tiny_gguf(0))
    tokens, kinds = (file.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))

    assert isinstance(tokens, Texts) and isinstance(kinds, Numbers)
    assert list(kinds) == [kinds[i] for i in range(len(kinds))] == kinds and kinds[1:3] == list(kinds)[1:3]
    assert set(map(type, kinds)) == {int}


def test_who_reads_metadata_only_builds_no_tokenizer(monkeypatch, tmp_path):
    """Neither `spec compat`, nor a method that does not fit, nor a model that is refused."""
    built = []
    monkeypatch.setattr(gguf_vocabulary, "Backend", lambda *args: built.append(args))
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf(0).read_bytes())

    assert run_command(["compat", "-m", str(path)]) == 0
    assert run_command(["generate", "-m", str(path), "-p", "a", "--method", "mtp"]) == 2
    with pytest.raises(UsageError):
        load(path, context=1 << 20)
    assert not built


def test_a_run_of_a_tokenizer_that_cannot_be_built_is_refused_before_weights_are_read(monkeypatch, tmp_path):
    monkeypatch.setattr(gguf_vocabulary, "listed_merges", lambda *args: [("no", "tokens")])
    monkeypatch.setattr("spec_targets.runtime.plan.load_executor", None)
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf(0).read_bytes())

    with pytest.raises(UsageError, match="tokenizer cannot be built"):
        Run(str(path))
