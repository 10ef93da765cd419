"""Logits, hidden states and greedy tokens equal those of independent implementations.

The bar is 4 times what one float32 rounding step at the input changes (``rounding_floor`` in golden.json): a wrong norm
epsilon moves logits by a hundred times that and flips no argmax.
"""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from spec_core import Needs, load
from tests.support.golden import golden
from tests.targets.drive import EVERYTHING, forward, fresh, greedy, part, sequence

DENSE = ("llama", "qwen2", "qwen3", "qwen3moe", "glm4moe", "minimax-m2")
HYBRID = ("qwen3next", "qwen35", "qwen35moe")
KIMI = "kimi-linear"
"""Its file has another eps in some norms than its directory: two sets of tensors."""
LATENT = ("glm4moelite", "deepseek3")
"""Latents with rotation; of glm4moelite as of kimi-linear there are two sets of tensors."""
STREAMED = "glm5_next"
"""Residual streams, delta nets with bounded decays, and latents whose positions an index chooses."""
GATED = ("muse_glimmer", "laguna")
"""Their attention has gates of its own. The file of laguna has another scale of cos and sin than its directory."""
SHORT = ("lfm2", "lfm2moe")
SCANNED = ("granite-hybrid", "granite-hybrid-dense", "falcon-h1", "nemotron-h", "nemotron-h-moe")
WITHOUT_GGUF = ("olmo-hybrid", "lfm3")
"""Directories alone: llama.cpp does not know these."""
ARCHS = (*DENSE, *HYBRID, KIMI, STREAMED, *LATENT, *GATED, *SHORT, *SCANNED)
MODELS = [f"{arch}/{file}" for arch in ARCHS for file in ("model-f32.gguf", "hf")]
MODELS += [f"{arch}/hf" for arch in WITHOUT_GGUF]
QUANTISED = {
    "qwen3-q8_0": "model-q8_0.gguf",
    "llama-q4_k_m": "model-q4_k_m.gguf",
    "qwen35-q8_0": "model-q8_0.gguf",
}
EXECUTORS = ("native", "reference")
QUANTISED_BAR = {"qwen3-q8_0": 4e-5, "llama-q4_k_m": 4e-5, "qwen35-q8_0": 2.7e-4}
"""golden.json gives no floor for these; 4 times those of the float32 models, which are 1e-5 and, for qwen35, 6.8e-5."""


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Case:
    """A loaded target beside its expected tensors."""

    def __init__(self, name: str, kernels: str = "auto", **options: str) -> None:
        folder, _, file = name.rpartition("/")
        self.path = golden(folder)
        self.target = load(self.path / file, kernels=kernels, **options)
        self.tensors = load_file(self.path / "golden.safetensors")
        self.is_second = file == "model-f32.gguf" and "gguf.logits_37" in self.tensors
        second = {name: value for name, value in self.tensors.items() if name.startswith("gguf.")}
        if self.is_second:
            self.tensors |= {name.removeprefix("gguf."): value for name, value in second.items()}
        self.facts = json.loads((self.path / "golden.json").read_text())

    def tokens(self, name: str) -> list[int]:
        return self.tensors[name].tolist()

    def bar(self, length: int) -> float:
        return 4 * self.facts["rounding_floor"][f"logits_{length}"]


@pytest.fixture(scope="module", params=EXECUTORS)
def kernels(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=MODELS)
def case(request, kernels) -> Case:
    """The bars are those of float32 arithmetic."""
    return Case(request.param, kernels, cache_dtype="float32")


def quantised_case(name: str, kernels: str) -> Case:
    options = {"activations": "int15"} if kernels == "native" else {}
    return Case(f"quantmodel/{name}/{QUANTISED[name]}", kernels, cache_dtype="float32", **options)


def root_mean_square(expected: torch.Tensor, got: torch.Tensor) -> float:
    """Root mean square of the difference, as a share of the range of the logits."""
    return ((expected - got).square().mean().sqrt() / (expected.max() - expected.min())).item()


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


@pytest.mark.parametrize("length", [1, 37, 130])
def test_logits_of_every_position(case, length):
    got = fresh(case.target, case.tokens(f"prompt_{length}")).logits

    assert largest(case.tensors[f"logits_{length}"], got) <= case.bar(length)


def test_hidden_states_enter_the_block_of_their_index(case):
    """Index i enters block i, the number of layers has left the last, ``final`` is after the last norm.

    Where hidden states are larger than logits, as logits are scaled, so is their rounding. Of several residual streams
    they are the mean.
    """
    if case.is_second:
        pytest.skip("there are no hidden states with the file's eps")
    layers = case.target.info.layers
    output = fresh(case.target, case.tokens("prompt_37"), Needs(hidden=range(layers + 1), final=True))
    expected = [case.tensors["hidden_37.embed"]]
    expected += [case.tensors[f"hidden_37.layer_{i}"] for i in range(layers)]
    expected = [rows.mean(1) if rows.dim() == 3 else rows for rows in expected]

    scale = max(1.0, max(e.abs().max().item() for e in expected) / case.tensors["logits_37"].abs().max().item())

    assert max(largest(e, output.hidden[i]) for i, e in enumerate(expected)) <= scale * case.bar(37)
    assert largest(case.tensors["hidden_37.norm"], output.final) <= case.bar(37)


def test_greedy_tokens_over_the_cache(case):
    tokens, rows = greedy(case.target, case.tokens("prompt_16"), 32)

    assert case.tokens("greedy_tokens") == tokens
    assert "llamacpp_greedy_tokens" not in case.tensors or case.tokens("llamacpp_greedy_tokens") == tokens
    assert largest(case.tensors["greedy_logits"], torch.stack(rows)) <= case.bar(130)


def test_token_by_token_equals_one_pass(case):
    tokens = case.tokens("prompt_37")
    seq = sequence(case.target, tokens)
    rows = [forward(case.target, part(seq, i, [t])).logits for i, t in enumerate(tokens)]

    assert largest(case.tensors["logits_37"], torch.cat(rows)) <= case.bar(37)


@pytest.mark.parametrize("chunk", [2, 5, 36])
def test_a_prompt_in_chunks_equals_one_pass(case, chunk):
    tokens = case.tokens("prompt_37")
    seq = sequence(case.target, tokens)
    starts = range(0, len(tokens), chunk)
    rows = [forward(case.target, part(seq, i, tokens[i : i + chunk]), needs=EVERYTHING).logits for i in starts]

    assert largest(case.tensors["logits_37"], torch.cat(rows)) <= case.bar(37)


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_logits_are_those_of_the_dequantised_weights(name):
    case = quantised_case(name, "reference")
    got = fresh(case.target, case.tokens("prompt_37")).logits

    assert largest(case.tensors["logits_37"], got) <= QUANTISED_BAR[name]


@pytest.mark.parametrize("name", QUANTISED)
def test_native_logits_lie_near_those_of_the_dequantised_weights(name):
    """15 bits of activations: within 0.05 % of the range, root mean square.

    The same token is the best, but for ties nearer than that: one row of qwen3-q8_0 has its two best 1.3e-4 apart.
    """
    case = quantised_case(name, "native")
    expected, got = case.tensors["logits_37"], fresh(case.target, case.tokens("prompt_37")).logits
    best = expected.topk(2).values
    apart = best[:, 0] - best[:, 1] > 5e-4 * (expected.max() - expected.min())

    assert root_mean_square(expected, got) <= 5e-4
    assert torch.equal(expected.argmax(-1)[apart], got.argmax(-1)[apart])
    assert apart.sum() >= len(apart) - 2


@pytest.mark.parametrize("name", QUANTISED)
def test_native_logits_with_8_bits_of_activations_lie_within_1_percent_of_the_range(name):
    """Root mean square. Rows whose two best tokens are further apart than 4 times that keep their best token."""
    case = Case(f"quantmodel/{name}/{QUANTISED[name]}", "native", activations="int8", cache_dtype="float32")
    expected, got = case.tensors["logits_37"], fresh(case.target, case.tokens("prompt_37")).logits
    best = expected.topk(2).values
    apart = best[:, 0] - best[:, 1] > 0.04 * (expected.max() - expected.min())

    assert 5e-4 < root_mean_square(expected, got) <= 0.01
    assert torch.equal(expected.argmax(-1)[apart], got.argmax(-1)[apart])
    assert apart.any()


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_greedy_tokens(name, kernels):
    case = quantised_case(name, kernels)
    expected = case.tokens("greedy_tokens")

    assert greedy(case.target, case.tokens("prompt_16"), len(expected))[0] == expected


@pytest.mark.parametrize("arch", (*DENSE, *SHORT))
def test_a_file_and_a_directory_of_one_model_give_the_same_bits(arch, kernels):
    """Both names of a weight end in the same product, their rows in the same order."""
    file, directory = (Case(f"{arch}/{name}", kernels) for name in ("model-f32.gguf", "hf"))
    tokens = file.tokens("prompt_37")

    assert torch.equal(fresh(file.target, tokens).logits, fresh(directory.target, tokens).logits)


@pytest.mark.parametrize("file", ["model-f32.gguf", "hf"])
def test_residual_streams_are_those_of_the_reference(file, kernels, monkeypatch):
    case, seen = Case(f"{STREAMED}/{file}", kernels, cache_dtype="float32"), {}
    names = [f"streams.{i}" for i in range(case.target.info.layers + 1)]
    run = case.target.executor.run

    def run_with_streams(batch):
        batch.taps = {*batch.taps, *names}
        seen.update(run(batch))
        return seen

    monkeypatch.setattr(case.target.executor, "run", run_with_streams)
    fresh(case.target, case.tokens("prompt_37"))
    expected = [case.tensors["hidden_37.embed"], *(case.tensors[f"hidden_37.layer_{i}"] for i in range(len(names) - 1))]

    assert max(largest(e.flatten(1), seen[name]) for name, e in zip(names, expected, strict=True)) <= case.bar(37)


@pytest.mark.parametrize("arch", (*HYBRID, KIMI, STREAMED, "olmo-hybrid", *SHORT, *SCANNED))
def test_recurrent_states_are_those_of_the_reference(arch, kernels):
    """Compare the last inputs of convolutions, and matrices, in the checkpoint's order of value heads.

    Channels of Mamba-2 are C, B and x here, and x, B and C in checkpoints, whose matrices are transposed.
    """
    case = Case(f"{arch}/hf", kernels, cache_dtype="float32")
    seq = sequence(case.target, case.tokens("prompt_37"))
    forward(case.target, part(seq, 0, case.tokens("prompt_37")))
    matrices, windows = case.target.checkpoint(seq)
    for block, matrix, window in zip(sorted(case.target.config.recurrent), matrices, windows, strict=True):
        inputs = case.tensors[f"state_37.layer_{block}.conv"][:, -window.shape[0] :]
        if arch in SCANNED:
            s = case.target.config.scan
            x, keys, queries = inputs.split([s.value_width, s.key_width, s.key_width])
            inputs, matrix = torch.cat([queries, keys, x]), matrix.mT
        if arch not in SHORT:
            expected = case.tensors[f"state_37.layer_{block}.recurrent"]
            assert largest(expected, matrix) <= 1e-5 * expected.abs().max()
        assert largest(inputs.T, window) <= 1e-5 * inputs.abs().max()


@pytest.mark.parametrize("arch", (KIMI, STREAMED, *LATENT))
def test_latents_are_those_of_the_reference(arch, kernels):
    """After the numbers that all heads share, in which the first members of all pairs come first."""
    case = Case(f"{arch}/hf", kernels, cache_dtype="float32")
    seq = sequence(case.target, case.tokens("prompt_37"))
    forward(case.target, part(seq, 0, case.tokens("prompt_37")))
    for block in sorted(set(range(case.target.info.layers)) - case.target.config.recurrent):
        keys, values = seq.slot.state.cache.read(case.target.config.layer_of(block), 37)
        names = [f"state_37.layer_{block}.{name}" for name in ("shared_key", "latent")]
        parts = [case.tensors[name] for name in names if name in case.tensors]

        assert largest(torch.cat(parts, 1), keys[0]) <= case.bar(37)
        assert torch.equal(keys[0, :, -parts[-1].shape[1] :], values[0])


def test_rows_of_an_index_are_those_of_the_reference(kernels):
    """Keys, and scores within a pool."""
    case = Case(f"{STREAMED}/hf", kernels, cache_dtype="float32")
    seq, config = sequence(case.target, case.tokens("prompt_37")), case.target.config
    forward(case.target, part(seq, 0, case.tokens("prompt_37")))
    for block in sorted(config.indexing):
        rows, _ = seq.slot.state.cache.read(config.index_layer(block), 37)

        assert largest(case.tensors[f"state_37.layer_{block}.indexer"][:, :-1], rows[0]) <= case.bar(37)
