"""Models with windows: Mistral, Phi-3, Gemma 2, 3 and 4, gpt-oss, against golden vectors.

The bar of golden vectors is 4 times what one float32 rounding step changes at the input or in the rotary frequencies.
"""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from spec_kernels.ops.rope import frequencies
from spec_targets.architectures.rope import Scaling, rope_frequencies

from spec_core import Needs, load
from tests.support.golden import golden
from tests.targets.drive import EVERYTHING, forward, fresh, greedy, part, sequence

CASES = {
    "mistral/hf": "",
    "mistral/model-f32.gguf": "full_attention.",
    "phi3/hf": "",
    "phi3/model-f32.gguf": "",
    "phi3-longrope/hf": "long.",
    "phi3-longrope/model-f32.gguf": "long.",
    "gemma2/hf": "",
    "gemma2/model-f32.gguf": "",
    "gemma3/hf": "",
    "gemma3/model-f32.gguf": "",
    "gemma4-e/hf": "",
    "gemma4-e/model-f32.gguf": "",
    "gemma4-k/hf": "",
    "gemma4-k/model-f32.gguf": "",
    "gemma4-moe/hf": "",
    "gemma4-moe/model-f32.gguf": "",
    "gpt-oss/hf": "",
    "gpt-oss/model-f32.gguf": "",
    "gpt-oss-notruncate/hf": "",
    "gpt-oss-notruncate/model-f32.gguf": "truncated.",
}
"""Tensors of each file: GGUF files have no window of Mistral, and none of YaRN's ``truncate``."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Case:
    """A loaded target beside its expected tensors."""

    def __init__(self, name: str, prefix: str, kernels: str, **options) -> None:
        folder, _, file = name.rpartition("/")
        path = golden(folder)
        self.name, self.prefix = name, prefix
        self.target = load(path / file, kernels=kernels, cache_dtype="float32", **options)
        self.tensors = load_file(path / "golden.safetensors")
        self.facts = json.loads((path / "golden.json").read_text())

    def tokens(self, name: str) -> list[int]:
        return self.tensors[name].tolist()

    def bar(self, length: int) -> float:
        floors = (self.facts[kind][f"logits_{length}"] for kind in ("rounding_floor", "rotary_floor"))
        return 4 * max(floors)


@pytest.fixture(scope="module", params=["native", "reference"])
def kernels(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=CASES)
def case(request, kernels) -> Case:
    return Case(request.param, CASES[request.param], kernels)


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


@pytest.mark.parametrize("length", [37, 130])
def test_logits_of_every_position(case, length):
    got = fresh(case.target, case.tokens(f"prompt_{length}")).logits

    assert largest(case.tensors[f"{case.prefix}logits_{length}"], got) <= case.bar(length)


def test_greedy_tokens_over_the_cache(case):
    tokens, rows = greedy(case.target, case.tokens("prompt_16"), 32)

    assert case.tokens(f"{case.prefix}greedy_tokens") == tokens
    assert case.tokens(f"{case.prefix}llamacpp_greedy_tokens") == tokens or case.name == "mistral/hf"
    assert largest(case.tensors[f"{case.prefix}greedy_logits"], torch.stack(rows)) <= case.bar(130)


@pytest.mark.parametrize("chunk", [1, 2, 5, 36])
def test_a_prompt_in_chunks_equals_one_pass(case, chunk):
    """Chunks end before, in and behind the window of 16."""
    tokens = case.tokens("prompt_37")
    seq = sequence(case.target, tokens)
    starts = range(0, len(tokens), chunk)
    rows = [forward(case.target, part(seq, i, tokens[i : i + chunk]), needs=EVERYTHING).logits for i in starts]

    assert largest(case.tensors[f"{case.prefix}logits_37"], torch.cat(rows)) <= case.bar(37)


@pytest.mark.parametrize("name", [name for name, prefix in CASES.items() if not prefix])
def test_hidden_states_enter_the_block_of_their_index(name, kernels):
    """The first is the scaled embedding."""
    case = Case(name, "", kernels)
    layers = case.target.info.layers
    output = fresh(case.target, case.tokens("prompt_37"), Needs(hidden=range(layers + 1), final=True))
    expected = [case.tensors["hidden_37.embed"]]
    expected += [case.tensors[f"hidden_37.layer_{i}"] for i in range(layers)]
    size = max(e.abs().max().item() for e in expected)

    assert max(largest(e, output.hidden[i]) for i, e in enumerate(expected)) <= case.bar(37) + 1e-6 * size
    assert largest(case.tensors["hidden_37.norm"], output.final) <= case.bar(37)


@pytest.mark.parametrize("file", ["hf", "model-f32.gguf"])
def test_short_factors_belong_to_a_context_of_the_original_length(file, kernels):
    """The plain tensors of this model are short while its text is."""
    case = Case(f"phi3-longrope/{file}", "", kernels, context=64)

    assert largest(case.tensors["logits_37"], fresh(case.target, case.tokens("prompt_37")).logits) <= case.bar(37)
    assert greedy(case.target, case.tokens("prompt_16"), 32)[0] == case.tokens("greedy_tokens")


@pytest.mark.parametrize("family", ["phi3", "gemma2", "gemma3", "gemma4-e", "gemma4-k", "gemma4-moe", "gpt-oss"])
def test_a_file_and_a_directory_of_one_model_give_the_same_bits(family, kernels):
    file, directory = (Case(f"{family}/{name}", "", kernels) for name in ("model-f32.gguf", "hf"))
    tokens = file.tokens("prompt_37")

    assert torch.equal(fresh(file.target, tokens).logits, fresh(directory.target, tokens).logits)


@pytest.mark.parametrize("context, divisors", [(63, (1.0, 2.0)), (64, (1.0, 2.0)), (65, (4.0, 8.0))])
def test_longrope_takes_its_long_factors_beyond_the_original_context(context, divisors):
    scaling = Scaling("longrope", original=64, short=(1.0, 2.0), long=(4.0, 8.0))

    theta, _ = rope_frequencies(4, 1e4, scaling, None, context)

    assert torch.equal(theta, frequencies(4, 1e4) / torch.tensor(divisors))
