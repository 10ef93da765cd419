"""Gemma 4's assistants against an independent implementation, and as a method."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from spec_kernels.model.head import spread
from spec_kernels.model.trunk import executor_of
from spec_methods.assistant.layer import Layer

from spec_core import load
from spec_core.toolkit import cache_reader
from tests.support.golden import golden
from tests.targets.drive import forward, part, sequence

TARGETS = ("gemma4-e", "gemma4-k")
TOLERANCE = 2e-4
"""Of logits; those of the golden vectors and of other implementations differ by as much."""
FORMS = {"hf": "", "model-f32.gguf": "gguf."}
"""What is read, and the vectors that belong to it: windows and the output matrix differ."""


def open_target(name: str, kernels: str, **options: str):
    return load(golden(name) / "hf", dtype="float32", device="cpu", kernels=kernels, cache_dtype="float32", **options)


def prefill(target, tokens):
    """A sequence whose slot holds the rows of these tokens."""
    seq = sequence(target, tokens)
    forward(target, part(seq, 0, tokens))
    return seq


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("form", [*FORMS, "position_minus_1"])
@pytest.mark.parametrize("name", TARGETS)
def test_a_draft_is_that_of_the_original_implementation(name, form, kernels):
    """States, logits and tokens of five steps over the target's own cache."""
    target = open_target(name, kernels)
    path = golden(f"gemma4-assistant/{name}")
    file = load(path / (form if form in FORMS else "hf"), weights=False)
    assert file.misfit(target) is None
    expected, kind = load_file(path / "golden.safetensors"), FORMS.get(form, f"{form}.")
    reader = cache_reader(target)
    layer = Layer(file, executor_of(target), reader, target.info.layers, form != "position_minus_1")
    for case in ("ctx20", "ctx33"):
        of = lambda part, case=case: expected[f"{case}.{part}"]
        tokens, token = of("tokens").tolist(), int(of("id_last"))
        seq = prefill(target, tokens)
        memory = layer.memory()
        memory.take(0, [*tokens[1:], token], of("hidden")[-1:], {})
        memory.rows = reader.rows(seq, len(tokens))
        drafted, part = [], memory.pairs()
        for step in range(5):
            state, rows = layer.forward([part])
            logits, reference = spread(rows, layer.ids, layer.vocab)[0], of(f"{kind}draft_logits")[step]
            finite = torch.isfinite(logits)
            assert (logits[finite] - reference[finite]).abs().max() <= TOLERANCE
            assert finite.all() or (reference[~finite] == reference[finite].min() - 1).all()
            assert (state[0] - of(f"{kind}draft_projected")[step]).abs().max() <= TOLERANCE
            drafted.append(int(logits.argmax()))
            part = memory.own(step + 1, drafted[-1], state)
        assert drafted == of(f"{kind}draft_tokens").tolist()


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("name", TARGETS)
def test_the_reader_shows_the_keys_and_values_of_the_original_implementation(name, kernels):
    target = open_target(name, kernels)
    expected = load_file(golden(f"gemma4-assistant/{name}") / "golden.safetensors")
    tokens = expected["ctx20.tokens"].tolist()
    seq, file = prefill(target, tokens), load(golden(f"gemma4-assistant/{name}") / "hf", weights=False)
    rows = cache_reader(target).rows(seq, len(tokens))

    for block in file.blocks(target):
        kind = "sliding_attention" if cache_reader(target).heads(block).window else "full_attention"
        rows_of_theirs = expected[f"ctx20.shared_kv.{kind}.key"], expected[f"ctx20.shared_kv.{kind}.value"]
        for got, want in zip(rows.read(block), rows_of_theirs, strict=True):
            assert (got[:, -want.shape[1] :] - want).abs().max() <= TOLERANCE
