"""The type of activations: the rule by types of weights, what forces it, what names it, equal bits under it."""

from __future__ import annotations

from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import quantize
from spec_kernels import facts, native
from spec_kernels.model.ops import Embed, Linear
from spec_kernels.model.reference import Reference
from spec_kernels.native.activations import ALLOWED, NOISE, by_types, ratio, sizes_of_types
from spec_kernels.native.executor import Native, Options
from spec_kernels.ops.dequant import dequantize

from benchmarks.activations import RoundedRows, logits
from benchmarks.support.rounding import Rounded, round_weights, steps
from spec_core import Run, load
from tests.kernels.products import example
from tests.support.small_models import tiny_gguf
from tests.targets.drive import forward, fresh, part, sequence

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
PROMPT = [(7 * i * i + 3) % 96 for i in range(24)]


class Requantised:
    """A source whose matrices are stored in blocks of 32: ``head`` for the embedding, ``rest`` for others."""

    def __init__(self, source, rest: str, head: str) -> None:
        self.source, self.rest, self.head = source, rest, head

    def type(self, name: str) -> str:
        if len(self.source.shape(name)) == 1:
            return self.source.type(name)
        return self.head if name in ("token_embd.weight", "output.weight") else self.rest

    def blocks(self, name: str) -> torch.Tensor:
        kind = gguf.GGMLQuantizationType[self.type(name)]
        floats = np.ascontiguousarray(self.source.load(name).float().numpy())
        return torch.from_numpy(quantize(floats, kind).view(np.uint8))

    def __getattr__(self, name: str):
        return getattr(self.source, name)


def of_types(rest: str, head: str, choice: str = "auto", isa: str | None = None):
    """A tiny random target with weights of these types."""
    target = load(tiny_gguf(), kernels="native", threads=1)
    was = target.executor
    target.executor = Native(was.model, Requantised(was.source, rest, head), Options(choice, isa=isa))
    return target


@pytest.mark.parametrize(
    "sizes, name",
    [
        ({"Q4_0": 1}, "int8"),
        ({"Q4_1": 1}, "int8"),
        ({"Q5_0": 1}, "int8"),
        ({"Q5_1": 1}, "int8"),
        ({"Q4_K": 1}, "int8"),
        ({"Q5_K": 1}, "int8"),
        ({"Q6_K": 1}, "int15"),
        ({"Q8_0": 1}, "int15"),
        ({"Q4_1": 106, "Q8_0": 28}, "int8"),  # SmolLM2: its output matrix is Q8_0
        ({"Q4_K": 80, "Q6_K": 20}, "int8"),  # about what Q4_K_M files are
        ({"Q8_0": 98, "Q4_0": 2}, "int15"),
        ({}, "int15"),
    ],
)
def test_types_of_weights_decide(sizes, name):
    assert by_types(sizes).name == name


def test_the_noise_of_a_mix_is_the_sum_of_its_parts_by_weights():
    assert ratio({"Q8_0": 7}) == pytest.approx(NOISE["Q8_0"])
    assert 1 / ratio({"Q4_0": 1, "Q8_0": 3}) == pytest.approx(0.25 / NOISE["Q4_0"] + 0.75 / NOISE["Q8_0"])


def test_every_type_that_stays_in_blocks_has_a_figure():
    assert sorted(NOISE) == sorted(set(native.TYPES) - {"F32", "F16", "BF16"})


@pytest.mark.parametrize(
    "rest, head, name", [("Q4_0", "Q8_0", "int8"), ("Q8_0", "Q8_0", "int15"), ("F32", "F32", "int15")]
)
def test_a_model_follows_its_weights(rest, head, name):
    assert of_types(rest, head).executor.activations.name == name


def test_an_embedding_counts_only_where_it_is_the_output_matrix_too():
    executor = of_types("Q4_0", "Q8_0").executor
    model = executor.model
    tables = {op.table.key for op in model.ops if isinstance(op, Embed)}
    inner = tuple(op for op in model.ops if not (isinstance(op, Linear) and op.weights[0].key in tables))

    assert set(sizes_of_types(model, executor.arena)) == {"Q4_0", "Q8_0"}
    assert set(sizes_of_types(replace(model, ops=inner), executor.arena)) == {"Q4_0"}


def test_the_benchmark_rounds_activations_as_native_products_do():
    """The first row: later ones differ once a number lies at the middle of two steps in only one of both."""
    of = load("zoo:pico", kernels="native", activations="int8", cache_dtype="float32").executor
    source = Rounded(of.source, lambda name: None)
    tokens = torch.tensor(PROMPT[:1])
    exact, rounded, ours = (
        logits(executor, tokens).double()
        for executor in (
            Reference(of.model, source, torch.float64), RoundedRows(of.model, source, torch.float64), of
        )
    )  # fmt: skip

    assert (ours - rounded)[0].abs().max() < 1e-4 < 1e-3 < (ours - exact)[0].abs().max()


@pytest.mark.parametrize("type", NOISE)
def test_the_benchmark_reads_the_step_between_two_values_of_a_block(type):
    blocks = example(type, 4, 256)
    values, step = (m.double().view(-1, 16) for m in (dequantize(blocks, type), steps(blocks, type)))
    apart = ((values - values[:, :1]) / step)[step != 0]

    assert torch.allclose(apart, apart.round(), atol=1e-3)
    assert (apart.round().abs() == 1).any()


@pytest.mark.parametrize("type", NOISE)
def test_the_benchmark_rounds_weights_to_within_a_step(type):
    weights = torch.randn(8, 256, generator=torch.Generator().manual_seed(2))
    values, step = round_weights(weights, type)

    assert values.shape == step.shape == weights.shape
    assert ((values - weights).abs() <= 1.01 * step.abs() + 0.02).float().mean() > 0.99
    assert (values - weights).square().mean() < 0.01


@pytest.mark.parametrize("choice", native.ACTIVATIONS)
@pytest.mark.parametrize("rest", ["Q4_0", "Q8_0"])
def test_a_forced_type_is_in_force(rest, choice):
    formats = of_types(rest, rest, choice).executor.activations

    assert (formats.name, formats.why) == (choice, "")


@pytest.mark.parametrize("rest, name", [("Q4_0", "int8"), ("Q8_0", "int15")])
def test_auto_has_the_bits_of_what_it_chose(rest, name):
    other = {"int8": "int15", "int15": "int8"}[name]
    logits = {choice: fresh(of_types(rest, rest, choice), PROMPT).logits for choice in ("auto", name, other)}

    assert torch.equal(logits["auto"], logits[name])
    assert not torch.equal(logits["auto"], logits[other])


@pytest.mark.parametrize("isa", native.instruction_sets())
@pytest.mark.parametrize("rest", ["Q4_0", "Q8_0"])
def test_rows_have_equal_bits_in_any_number_under_auto(rest, isa):
    expected = fresh(of_types(rest, rest), PROMPT).logits
    of = of_types(rest, rest, isa=isa)
    for rows in (1, 3, 8):
        seq = sequence(of, PROMPT)
        parts = [forward(of, part(seq, i, PROMPT[i : i + rows])).logits for i in range(0, len(PROMPT), rows)]
        assert torch.equal(expected, torch.cat(parts))


def test_a_draft_head_follows_its_own_weights():
    """The other model's source has other types; what both share was read before."""
    trunk = of_types("Q4_0", "Q4_0").executor
    own = Native(trunk.model, Requantised(trunk.source.source, "Q8_0", "Q8_0"), trunk.options)

    assert (trunk.activations.name, own.activations.name) == ("int8", "int15")
    assert trunk.with_layers(trunk.model, trunk.source).activations == trunk.activations


def test_the_model_s_line_names_what_is_in_force_and_why():
    kernels = load("zoo:pico", kernels="native").info.kernels

    assert (
        f"activations int15 (auto: int8 adds {NOISE['Q8_0']:.2%} of the weights' own noise, > {ALLOWED:.0%})" in kernels
    )
    assert "activations int8," in load("zoo:pico", kernels="native", activations="int8").info.kernels


def test_the_environment_states_the_rule():
    text = facts.activations()

    assert text.startswith(f"auto: int8 where it adds at most {ALLOWED:.0%} of the noise")
    assert "Q8_0" in text.split("else int15")[1] and "Q4_0" in text.split("else int15")[0]


def test_a_drafter_is_loaded_with_the_wish_not_with_the_choice():
    """What ``auto`` chose for a target is not forced on another file."""
    assert load("zoo:pico", kernels="native").info.options == {"kernels": "native"}
    assert load("zoo:pico", activations="int8").info.options == {"activations": "int8"}
    assert Run(load("zoo:pico"))
