"""Modules against the reference operators they are made of, with scratch memory full of NaN."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from spec_kernels.nn.attention import SelfAttention
from spec_kernels.nn.cache import KVCache
from spec_kernels.nn.decoder import Block, Decoder
from spec_kernels.nn.forward import Forward, Scratch
from spec_kernels.nn.heads import HeadShape
from spec_kernels.nn.linear import Linear, pack
from spec_kernels.nn.mlp import GatedMLP
from spec_kernels.nn.moe import FEW_ROWS, MoE
from spec_kernels.nn.norm import RMSNorm
from spec_kernels.nn.rotary import RotaryTable
from spec_kernels.nn.window import MOST_QUERIES, Stretch, causal, masked
from spec_kernels.ops.attention import ancestor_mask, attention, causal_mask
from spec_kernels.ops.moe import experts, route
from spec_kernels.ops.rms_norm import rms_norm
from spec_kernels.ops.rope import frequencies, rope
from torch import Tensor
from torch.nn import functional as F

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nan_in_fresh_memory():
    """``torch.empty`` is filled with NaN: what nobody computed shows."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    with torch.inference_mode():
        yield
    torch.use_deterministic_algorithms(False)


def close(expected: Tensor, got: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


# linear and norm


@pytest.mark.parametrize("biased", [False, True])
def test_linear_is_that_of_torch(biased):
    x, w, b = torch.randn(3, 7), torch.randn(5, 7), torch.randn(5) if biased else None
    linear, residual = Linear(w, b), torch.randn(3, 5)

    close(F.linear(x, w, b), linear(x))
    close(F.linear(x, w, b), linear(x, out=torch.empty(3, 5)))
    close(residual + F.linear(x, w, b), linear.add(residual, x))


def test_packed_weights_lie_side_by_side():
    a, b, x = torch.randn(2, 7), torch.randn(5, 7), torch.randn(4, 7)

    close(torch.cat([x @ a.T, x @ b.T], 1), Linear.packed(pack([a, b]))(x))


@pytest.mark.parametrize("rows", [2, 3, 8, 33])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_packed_product_gives_every_row_the_same_bits(rows, threads):
    torch.set_num_threads(threads)
    x, linear = torch.randn(64, 192), Linear(torch.randn(320, 192))

    assert torch.equal(linear(x)[:rows], linear(x[:rows]))


@pytest.mark.parametrize("width", [1, 7, 64, 129])
@pytest.mark.parametrize("eps", [1e-6, 1e-1])
def test_norm_is_the_reference(width, eps):
    x, weight = torch.randn(5, width), torch.randn(width)

    close(rms_norm(x, weight, eps), RMSNorm(weight, eps)(x))


def test_a_norm_of_zeros_is_zero():
    assert torch.equal(RMSNorm(torch.ones(4), 1e-6)(torch.zeros(2, 4)), torch.zeros(2, 4))


def test_a_norm_in_place_has_a_weight_per_head():
    x, weight = torch.randn(3, 4, 8), torch.randn(4, 8)
    expected = rms_norm(x, weight, 1e-6)

    RMSNorm(weight, 1e-6).inplace(x)

    close(expected, x)


def test_a_norm_of_bfloat16_is_computed_in_float32():
    x, weight = torch.randn(3, 64).bfloat16(), torch.randn(64)
    got = RMSNorm(weight, 1e-6)(x)

    assert got.dtype == torch.bfloat16
    close(rms_norm(x.float(), weight, 1e-6), got.float(), atol=0.02)


@pytest.mark.parametrize("rotated", [4, 8])
@pytest.mark.parametrize("magnitude", [1.0, 1.3])
def test_a_rotary_table_turns_like_the_reference(rotated, magnitude):
    x, positions, turns = torch.randn(5, 2, 8), torch.tensor([0, 3, 3, 9, 1]), frequencies(rotated, 100.0)
    table = RotaryTable(turns, 8, 10, magnitude)

    got = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * table(positions)).flatten(-2)

    close(rope(x, positions, turns, "interleaved", magnitude), got)


# attention


class Layer:
    """A self-attention layer with random weights, and the same thing written with reference operators."""

    def __init__(self, heads: int, kv_heads: int, dim: int, value_dim: int, normed: bool, width: int = 24) -> None:
        self.shape = HeadShape(heads, kv_heads, dim, value_dim, dim**-0.5)
        self.qkv = torch.randn(self.shape.width, width) / width**0.5
        self.out = torch.randn(width, heads * value_dim) / (heads * value_dim) ** 0.5
        self.norm = torch.randn(heads + kv_heads, dim) if normed else None
        self.turns = frequencies(dim, 100.0)
        self.keys, self.values = torch.zeros(0, kv_heads, dim), torch.zeros(0, kv_heads, value_dim)

    def module(self) -> SelfAttention:
        norm = None if self.norm is None else RMSNorm(self.norm, 1e-6)
        return SelfAttention(self.shape, Linear(self.qkv), Linear(self.out), norm, layer=1)

    def cache(self, length: int) -> KVCache:
        return KVCache(2, self.shape.kv_heads, self.shape.key_dim, self.shape.value_dim, length)

    def reference(self, x: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
        """x [n, D] with its rows appended to those before; visible: bool [n, rows before + n]"""
        s = self.shape
        qk, v = (x @ self.qkv.T).split([s.qk_width, s.kv_heads * s.value_dim], 1)
        qk = qk.view(len(x), -1, s.key_dim)
        qk = qk if self.norm is None else rms_norm(qk, self.norm, 1e-6)
        qk = rope(qk, positions, self.turns, "interleaved")
        self.keys = torch.cat([self.keys, qk[:, s.heads :]])
        self.values = torch.cat([self.values, v.view(len(x), -1, s.value_dim)])
        out = attention(qk[:, : s.heads], self.keys, self.values, visible, s.scale)
        return x + out.flatten(1) @ self.out.T


def run(layer: Layer, x: Tensor, positions: Tensor, stretches: list[Stretch]) -> Tensor:
    rotation = RotaryTable(layer.turns, layer.shape.key_dim, 1024)(positions)
    return layer.module()(x, x, Forward(rotation, stretches, Scratch(len(x), x.dtype, CPU)))


SHAPES = {"one group": (3, 1), "groups": (4, 2), "no groups": (2, 2), "one head": (1, 1)}


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("before, rows", [(0, 2), (0, 31), (5, 2), (30, 5), (254, 4), (600, 3)])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_attend_to_what_is_cached_and_to_each_other(shape, before, rows, normed):
    layer = Layer(*SHAPES[shape], 8, 6, normed)
    cache = layer.cache(700)
    x = torch.randn(before + rows, 24)
    if before:
        layer.reference(x[:before], torch.arange(before), causal_mask(before, before))
        run(layer, x[:before], torch.arange(before), [Stretch(cache, 0, before, 0, causal(before))])
    positions = torch.arange(before, before + rows)

    expected = layer.reference(x[before:], positions, causal_mask(rows, before + rows))

    close(expected, run(layer, x[before:], positions, [Stretch(cache, 0, rows, before, causal(rows))]))


def test_a_long_stretch_attends_in_several_windows():
    rows = 2 * MOST_QUERIES + 3
    layer, x, positions = Layer(4, 2, 8, 8, True), torch.randn(rows, 24), torch.arange(rows)

    expected = layer.reference(x, positions, causal_mask(rows, rows))

    close(expected, run(layer, x, positions, [Stretch(layer.cache(rows), 0, rows, 0, causal(rows))]), atol=1e-4)


def test_branches_of_a_tree_do_not_see_each_other():
    parents = [-1, -1, 0, 1, 2, 0]
    layer, x, positions = Layer(4, 2, 8, 8, False), torch.randn(6, 24), torch.tensor([0, 0, 1, 1, 2, 1])
    visible = ancestor_mask(parents)

    expected = layer.reference(x, positions, visible)

    close(expected, run(layer, x, positions, [Stretch(layer.cache(64), 0, 6, 0, masked(visible))]), atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_sequences_of_a_batch_have_caches_of_their_own(shape):
    """Ragged: one row, three rows, two rows; each as if it were alone."""
    layer = Layer(*SHAPES[shape], 8, 8, True)
    x, positions = torch.randn(6, 24), torch.tensor([0, 0, 1, 2, 0, 1])
    bounds, masks = [(0, 1), (1, 4), (4, 6)], [None, causal(3), causal(2)]
    stretches = [Stretch(layer.cache(64), a, b - a, 0, m) for (a, b), m in zip(bounds, masks, strict=True)]

    got = run(layer, x, positions, stretches)

    for a, b in bounds:
        layer.keys, layer.values = layer.keys[:0], layer.values[:0]
        close(layer.reference(x[a:b], positions[a:b], causal_mask(b - a, b - a)), got[a:b], atol=1e-4)


# caches


def filled(length: int, rows: int) -> KVCache:
    cache = KVCache(2, 1, 4, 3, length)
    cache.enter(rows, length)
    cache.keys[..., :rows] = torch.arange(float(rows))
    cache.values[:, :, :rows] = torch.arange(float(rows))[:, None]
    return cache


def held(cache: KVCache, rows: int) -> list[float]:
    assert torch.equal(cache.keys[0, 0, 0, :rows], cache.values[0, 0, :rows, 0])
    return cache.keys[1, 0, 2, :rows].tolist()


@pytest.mark.parametrize("rows", [[4, 5], [5, 7], [6], [4, 6, 7], []])
def test_compacting_keeps_a_path_in_order(rows):
    cache = filled(16, 8)

    cache.compact(4, rows)

    assert held(cache, 4 + len(rows)) == [0, 1, 2, 3, *rows]


def test_a_grown_cache_has_the_same_rows():
    grown = filled(8, 8).grown(20)

    assert grown.length >= 20
    assert held(grown, 9) == [0, 1, 2, 3, 4, 5, 6, 7, 0]


def test_rows_behind_the_last_are_zeros():
    cache = filled(64, 20)

    cache.enter(5, 32)

    assert held(cache, 32) == [0, 1, 2, 3, 4] + [0] * 27


def test_rows_behind_the_last_are_zeros_after_a_short_stay():
    """Of 60 rows, those from 32 on were not looked at for a while; they are still not trusted."""
    cache = filled(64, 60)
    cache.enter(5, 32)

    cache.enter(33, 64)

    assert held(cache, 64)[33:] == [0] * 31


# experts


@pytest.mark.parametrize("rows", [2, 5, FEW_ROWS, FEW_ROWS + 1, 40])
def test_experts_are_the_reference(rows):
    gate, up, down = torch.randn(6, 5, 12), torch.randn(6, 5, 12), torch.randn(6, 12, 5)
    router, x = torch.randn(6, 12), torch.randn(rows, 12)
    choose = partial(route, top=2, normalise=True)
    packed = torch.cat([gate, up], 1).transpose(1, 2).contiguous()
    module = MoE(router.T.contiguous(), choose, packed, down.transpose(1, 2).contiguous())

    expected = x + experts(x, *choose(x @ router.T), gate, up, down)

    close(expected, module(x, x, SimpleNamespace(rows=rows)), atol=1e-4)


def test_few_rows_and_many_get_the_same_bits():
    module = MoE(torch.randn(32, 6), partial(route, top=2, normalise=False), *torch.randn(2, 6, 32, 32).unbind(0))
    module.gate_up = torch.randn(6, 32, 64)
    x = torch.randn(FEW_ROWS + 9, 32)

    many, few = (module(x[:n], x[:n], SimpleNamespace(rows=n)) for n in (len(x), 3))
    assert torch.equal(many[:3], few)


# the whole


def decoder(layers: int = 2, width: int = 24) -> tuple[Decoder, Layer]:
    layer = Layer(2, 1, 8, 8, True, width)
    blocks = [
        Block(
            RMSNorm(torch.ones(width), 1e-6),
            SelfAttention(layer.shape, Linear(layer.qkv), Linear(layer.out), None, i),
            RMSNorm(torch.ones(width), 1e-6),
            GatedMLP(Linear(torch.randn(32, width)), Linear(torch.randn(width, 16))),
        )
        for i in range(layers)
    ]
    rotary = RotaryTable(layer.turns, 8, 64)
    return Decoder(
        torch.randn(40, width), blocks, RMSNorm(torch.ones(width), 1e-6), Linear(torch.randn(40, width)), rotary
    ), layer


def test_a_single_row_is_accompanied_and_comes_back_alone():
    model, layer = decoder()

    x, taps = model.trunk(
        model.embed(torch.tensor([3])), torch.tensor([0]), [Stretch(layer.cache(64), 0, 1, 0, None)], {0, 1, 2}
    )

    assert [tuple(h.shape) for h in taps.values()] == [(1, 24)] * 3
    assert model.logits(model.norm(x)[:1]).shape == (1, 40)
    assert torch.isfinite(model.logits(model.norm(x)[:1])).all()


def test_no_rows_have_no_logits():
    model, _ = decoder()

    assert model.logits(torch.empty(0, 24)).shape == (0, 40)


def test_taps_are_the_streams_between_blocks():
    model, layer = decoder()
    tokens, positions = torch.tensor([3, 4, 5]), torch.arange(3)

    x, taps = model.trunk(model.embed(tokens), positions, [Stretch(layer.cache(64), 0, 3, 0, causal(3))], {0, 2})

    assert torch.equal(model.embedding[tokens], taps[0])
    assert torch.equal(x[:3], taps[2])
    assert set(taps) == {0, 2}


def test_a_bfloat16_layer_is_near_the_float32_one():
    layer, x, positions = Layer(4, 2, 16, 16, True), torch.randn(5, 24), torch.arange(5)
    x = x.bfloat16().float()
    expected = layer.reference(x, positions, causal_mask(5, 5))
    layer.qkv, layer.out = layer.qkv.bfloat16(), layer.out.bfloat16()
    cache = KVCache(2, 2, 16, 16, 64, dtype=torch.bfloat16)

    got = run(layer, x.bfloat16(), positions, [Stretch(cache, 0, 5, 0, causal(5))])

    assert got.dtype == torch.bfloat16
    close(expected, got.float(), atol=0.08)
