"""Tests that need a CUDA device: compiled kernels at the sizes of real layers, races, graphs, and whole models.

Nothing else tests these; on a machine without one they are skipped, and untested there. The small sizes of
``test_triton.py`` run on the device too where there is one.
"""

from __future__ import annotations

import pytest
import torch
from spec_kernels.ops.gated_delta import gated_delta

from benchmarks.kernels import Sizes, check, items, make_inputs
from spec_core import Run, Sampling, load
from tests.kernels.twins import chain, for_delta, move, ragged_lineage, with_runs
from tests.support.small_models import tiny_gguf

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: torch sees none"),
]
SIZES = Sizes(context=1500)
NAMES = [item.name for item in items(SIZES, 1) if item.reference is not None]

WRITTEN = {"states", "windows"}


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("rows", [1, 8, 33])
@pytest.mark.parametrize("name", NAMES)
def test_operators_agree_with_their_references_at_the_sizes_of_qwen3_next(name, rows):
    """In the dtype that layers compute in."""
    check(next(item for item in items(SIZES, rows) if item.name == name))


LINEAGES = {
    "kept": ragged_lineage(kept=True),
    "laid-aside": ragged_lineage(kept=False),
    "runs": with_runs(),
    "chain": chain(40),
}


@pytest.mark.parametrize("kind", LINEAGES)
def test_a_repeated_call_gives_the_same_bits(kind):
    """A race between threads, or between a state that is written and one that is read, moves bits now and then."""
    given = move(for_delta(LINEAGES[kind]), "cuda")
    states = given["states"].clone()
    first, after = gated_delta(**given), given["states"].clone()

    for _ in range(50):
        given["states"].copy_(states)
        again = gated_delta(**given)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert torch.equal(after.nan_to_num(), given["states"].nan_to_num())


@pytest.mark.parametrize("name", NAMES)
def test_operators_can_be_captured_in_a_graph(name):
    """After the first call with a shape nothing is copied through the host."""
    item = next(item for item in items(SIZES, 8) if item.name == name)
    given = make_inputs(item, "cuda")
    before = {n: given[n].clone() for n in WRITTEN & given.keys()}
    plain = first(item.op(**given)).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = first(item.op(**given))
    for n, memory in before.items():
        given[n].copy_(memory)
    graph.replay()

    assert torch.equal(plain, captured)


PER_ROW = {
    "attention": ("q", "visible"),
    "experts": ("x", "weights", "chosen"),
    "causal_conv": ("x",),
    "gated_delta, inputs traced": ("q", "k", "v", "g", "beta"),
}


@pytest.mark.parametrize("name", PER_ROW)
def test_a_row_has_the_same_bits_in_a_verify_step_and_alone(name):
    """The first row does not depend on the number of rows after it."""
    item = next(item for item in items(SIZES, 8) if item.name == name)
    given = make_inputs(item, "cuda")
    one = given | {n: given[n][:1] for n in PER_ROW[name]} | {n: given[n].clone() for n in WRITTEN & given.keys()}
    if "lineage" in given:
        one["lineage"] = chain(1)

    assert torch.equal(first(item.op(**one))[0], first(item.op(**given))[0])


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_drafting_on_cuda_gives_the_text_of_plain_decoding(temperature):
    """A whole model in float32; its products are the library's, so a near tie could differ and none is met here."""
    target = load(tiny_gguf(), dtype="float32", device="cuda")
    prompt = target.tokenizer.encode("def add(a, b):\n    return a + b\ndef add(")

    def text(methods: list[str]) -> list[int]:
        sampling = Sampling(temperature=temperature)
        return Run(target, methods=methods).generate(prompt, max_tokens=40, seed=3, sampling=sampling).result.tokens

    assert text([]) == text(["ngram"])
