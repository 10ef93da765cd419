"""Steps of decoding that torch compiles."""

from __future__ import annotations

import pytest
import torch

from spec_core import Run, UsageError, load
from tests.engines.models import directory

transformers = pytest.importorskip("transformers", "5.20")
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5] * 3
NGRAM = ("ngram", {"n_min": 1, "p_min": 0.0})


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def load_arch(arch: str = "llama", **options):
    return load(f"transformers:{directory(arch)}", dtype="float32", device="cpu", **options)


def texts(target):
    with Run(target, max_sequences=2) as run:
        return [
            generation.result.tokens
            for generation in run.generate([PROMPT, PROMPT[5:]], max_tokens=24, ignore_eos=True)
        ]


@pytest.fixture
def rows(monkeypatch):
    """Rows of each call of the compiled model, with a compiler that changes nothing."""
    seen = []

    def compile_forward(forward, dynamic):
        def call(tokens, **options):
            seen.append(tuple(tokens.shape))
            return forward(tokens, **options)

        return call

    monkeypatch.setattr(torch, "compile", compile_forward)
    return seen


def test_steps_in_which_one_sequence_decodes_are_compiled(rows):
    target = load_arch(compiled=True)
    rows.clear()
    Run(target, max_sequences=1).generate(PROMPT, max_tokens=5, ignore_eos=True).result
    assert rows == [(1, 1)] * 4


def test_drafts_are_compiled_and_change_no_text(rows):
    target, eager = load_arch(compiled=True), load_arch()
    rows.clear()
    compiled_target, plain = (
        Run(one, [NGRAM], max_sequences=1).generate(PROMPT, max_tokens=24, ignore_eos=True).result.tokens
        for one in (target, eager)
    )
    assert compiled_target == plain
    assert max(count for _, count in rows) > 1


def test_calls_with_masks_or_hidden_states_are_not_compiled(rows):
    """Several sequences share a call under a mask; hooks on the blocks of a compiled model would not be called."""
    target = load_arch(compiled=True)
    rows.clear()
    together = texts(target)
    assert rows == [] and together == texts(load_arch())


def test_models_with_windows_or_recurrent_layers_are_refused():
    with pytest.raises(UsageError, match="only models whose layers keep all rows are compiled"):
        load_arch("gemma", compiled=True)


def test_what_the_compiler_says_is_in_the_error(monkeypatch):
    def compile_forward(forward, dynamic):
        def call(*args, **options):
            raise RuntimeError("no C++ compiler\nat all")

        return call

    monkeypatch.setattr(torch, "compile", compile_forward)
    with pytest.raises(UsageError, match=r"torch.compile failed: no C.. compiler\n"):
        load_arch(compiled=True)


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.release
def test_compiled_steps_give_the_texts_of_others():
    target, eager = load_arch(compiled=True), load_arch()
    for methods in ([], [NGRAM], ["recycling"]):
        compiled_target, plain = (
            Run(one, methods, max_sequences=1).generate(PROMPT, max_tokens=24, ignore_eos=True).result.tokens
            for one in (target, eager)
        )
        assert compiled_target == plain
