"""Reference operators against independent formulas: transformers' own functions, or loops written out."""

from __future__ import annotations

import math

import pytest
import torch
import transformers
from spec_kernels.ops.attention import ancestor_mask, attention, causal_mask
from spec_kernels.ops.moe import experts, route_rows
from spec_kernels.ops.rms_norm import rms_norm
from spec_kernels.ops.rope import frequencies, interleaved_order, llama3_factors, rope, yarn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.mark.parametrize("width", [1, 7, 64, 129])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_rms_norm_is_that_of_transformers(width, eps):
    theirs = transformers.models.llama.modeling_llama.LlamaRMSNorm(width, eps)
    theirs.weight.data.normal_()
    x = torch.randn(5, width)

    torch.testing.assert_close(theirs(x), rms_norm(x, theirs.weight, eps), rtol=1e-6, atol=1e-6)


def test_rms_norm_of_tiny_rows_is_ruled_by_eps():
    x = torch.full((1, 4), 1e-6)

    torch.testing.assert_close(rms_norm(x, torch.ones(4), 1e-6), torch.full((1, 4), 1e-3), rtol=1e-5, atol=0)


def hf_rope(dim: int, **scaling) -> transformers.LlamaConfig:
    parameters = {"rope_type": "default", "rope_theta": 10000.0} | scaling
    return transformers.LlamaConfig(
        hidden_size=dim * 2, num_attention_heads=2, max_position_embeddings=4096, rope_parameters=parameters
    )


@pytest.mark.parametrize("dim", [2, 6, 64])
def test_rope_of_halves_is_that_of_transformers(dim):
    theirs = transformers.models.llama.modeling_llama
    table = theirs.LlamaRotaryEmbedding(hf_rope(dim))
    q, k, positions = torch.randn(1, 3, 9, dim), torch.randn(1, 1, 9, dim), torch.arange(9) * 7
    expected, _ = theirs.apply_rotary_pos_emb(q, k, *table(q, positions[None]))

    got = rope(q[0].transpose(0, 1), positions, frequencies(dim, 10000.0), "halves")

    torch.testing.assert_close(expected[0].transpose(0, 1), got)


def test_rope_of_interleaved_pairs_is_a_complex_product():
    x, positions, turns = torch.randn(5, 3, 8), torch.arange(5), frequencies(8, 500.0)
    spin = torch.polar(torch.ones(5, 4), positions[:, None] * turns)[:, None]
    expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2))) * spin).flatten(-2)

    torch.testing.assert_close(expected, rope(x, positions, turns, "interleaved"))


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_dimensions_behind_the_rotated_ones_pass_through(pairs):
    x = torch.randn(4, 2, 10)

    turned = rope(x, torch.arange(4) + 3, frequencies(6, 10000.0), pairs)

    assert torch.equal(x[..., 6:], turned[..., 6:])
    assert not torch.equal(x[..., :6], turned[..., :6])


@pytest.mark.parametrize("rotated", [4, 6, 10])
def test_reordered_halves_turn_like_interleaved_pairs(rotated):
    x, order, turns = torch.randn(4, 2, 10), interleaved_order(10, rotated), frequencies(rotated, 100.0)
    positions = torch.arange(4)

    expected = rope(x, positions, turns, "halves")[..., order]

    assert torch.equal(expected, rope(x[..., order], positions, turns, "interleaved"))


def test_llama3_factors_slow_the_frequencies_as_transformers_does():
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    expected, rope_scale = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](hf_rope(64, **scaling), "cpu")

    got = frequencies(64, 10000.0) / llama3_factors(64, 10000.0, 8.0, 1.0, 4.0, 64)

    assert rope_scale == 1.0
    torch.testing.assert_close(expected, got, rtol=1e-6, atol=0)


@pytest.mark.parametrize("factor, original", [(4.0, 64), (40.0, 32), (2.0, 4096)])
def test_yarn_frequencies_are_those_of_transformers(factor, original):
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    expected, rope_scale = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](hf_rope(64, **scaling), "cpu")

    got = yarn(frequencies(64, 10000.0), 10000.0, factor, original)

    assert rope_scale == pytest.approx(1 + 0.1 * math.log(factor))
    torch.testing.assert_close(expected, got, rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows, total", [(1, 1), (1, 9), (5, 5), (3, 17)])
@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (4, 2), (6, 1)])
def test_attention_is_scaled_dot_product_attention(rows, total, heads, kv_heads):
    q, k, v = torch.randn(rows, heads, 8), torch.randn(total, kv_heads, 8), torch.randn(total, kv_heads, 5)
    visible = causal_mask(rows, total)
    args = (m.transpose(0, 1)[None] for m in (q, k, v))
    expected = F.scaled_dot_product_attention(*args, attn_mask=visible, scale=0.3, enable_gqa=True)

    torch.testing.assert_close(expected[0].transpose(0, 1), attention(q, k, v, visible, 0.3))


def test_a_hidden_row_has_no_influence():
    q, k, v = torch.randn(1, 2, 4), torch.randn(6, 1, 4), torch.randn(6, 1, 4)
    visible = torch.tensor([[True, True, False, True, False, True]])
    seen = visible[0]

    torch.testing.assert_close(
        attention(q, k[seen], v[seen], torch.ones(1, 4, dtype=torch.bool), 0.5), attention(q, k, v, visible, 0.5)
    )


def test_every_causal_row_sees_itself_and_the_past():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]


def test_a_node_of_a_tree_sees_its_ancestors_only():
    mask = ancestor_mask([-1, 0, 0, 2, -1])

    assert [row.nonzero().flatten().tolist() for row in mask] == [[0], [0, 1], [0, 2], [0, 2, 3], [4]]


def test_a_chain_is_causal():
    assert torch.equal(causal_mask(5, 5), ancestor_mask([-1, 0, 1, 2, 3]))


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("rows", [1, 7])
def test_experts_are_those_of_transformers(rows, normalise):
    config = transformers.Qwen3MoeConfig(
        hidden_size=12, moe_intermediate_size=5, num_experts=6, num_experts_per_tok=3, norm_topk_prob=normalise
    )
    config._experts_implementation = "eager"
    theirs = transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock(config)
    for parameter in theirs.parameters():
        parameter.data.normal_()
    x = torch.randn(rows, 12)
    gate, up = theirs.experts.gate_up_proj.chunk(2, dim=1)

    weights, chosen = route_rows(x @ theirs.gate.weight.T, 3, normalise)
    got = experts(x, weights, chosen, gate, up, theirs.experts.down_proj)

    with torch.no_grad():
        expected = theirs(x[None])[0]
        torch.testing.assert_close(expected.reshape(rows, 12), got, rtol=1e-5, atol=1e-4)


def test_routing_weights_are_scaled_after_they_were_normalised():
    weights, _ = route_rows(torch.randn(3, 5), 2, True, scale=2.5)

    torch.testing.assert_close(weights.sum(-1), torch.full((3,), 2.5))
