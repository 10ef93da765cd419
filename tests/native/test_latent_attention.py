"""Latent attention as operations, with rotation and without: what keys and values of every head give when expanded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from spec_kernels import native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.build import Builder
from spec_kernels.model.latent import latent_attention, latent_heads
from spec_kernels.model.ops import Input, Model, Tap
from spec_kernels.model.reference import Reference
from spec_kernels.model.shapes import BlockShape, LatentShape
from spec_kernels.model.source import bytes_of
from spec_kernels.native.executor import Native, Options
from torch import Tensor

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
WIDTH, HEADS, ROWS, EPS = 20, 3, 23, 1e-4
SHAPES = {
    "small": LatentShape(rank=12, shared=6, plain=10, value=14),
    "wide": LatentShape(rank=48, shared=16, plain=7, value=33),
    "as published": LatentShape(rank=512, shared=64, plain=128, value=128),
    "queries from a latent": LatentShape(rank=12, shared=6, plain=10, value=14, queries=9),
}


class RandomTensors:
    """Tensors of a layer by name, float32."""

    def __init__(self, s: LatentShape) -> None:
        shapes = {
            "attn_kv_a_mqa.weight": (s.rank + s.shared, WIDTH),
            "attn_kv_a_norm.weight": (s.rank,),
            "attn_k_b.weight": (HEADS, s.rank, s.plain),
            "attn_v_b.weight": (HEADS, s.value, s.rank),
            "attn_output.weight": (WIDTH, HEADS * s.value),
        }
        if s.queries:
            shapes |= {"attn_q_a.weight": (s.queries, WIDTH), "attn_q_a_norm.weight": (s.queries,)}
        shapes["attn_q_b.weight" if s.queries else "attn_q.weight"] = (HEADS * s.key, s.queries or WIDTH)
        numbers = torch.Generator().manual_seed(s.rank)
        self.tensors = {
            name: torch.randn(shape, generator=numbers) * (1.0 if len(shape) == 1 else shape[-1] ** -0.5)
            for name, shape in shapes.items()
        }

    def shape(self, name: str) -> tuple[int, ...] | None:
        return tuple(self.tensors[name].shape) if name in self.tensors else None

    def type(self, name: str) -> str:
        return "F32"

    def load(self, name: str) -> Tensor:
        return self.tensors[name]

    def blocks(self, name: str) -> Tensor:
        return bytes_of(self.tensors[name])


def describe(s: LatentShape, source: RandomTensors, rotates: bool) -> Model:
    """The layer over the rows ``x``, which it also takes as normalised."""
    heads = latent_heads(HEADS, s, s.shared if rotates else 0)
    builder = Builder(BlockShape(WIDTH, heads, EPS), source)
    ops = (Input("x", WIDTH), Input("h", WIDTH), *latent_attention(builder, s, EPS), Tap("x", "out"))
    return Model(ops, angles(s) if rotates else None)


def angles(s: LatentShape) -> Tensor:
    """Radians per position of every pair of shared numbers."""
    return 3.0 ** -torch.arange(s.shared // 2).float()


def run_rows(executor: Any, x: Tensor, tree: tuple[int, ...] | None = None) -> Tensor:
    """Rows of the layer: a prompt, then the rest one by one, or the last rows as a tree."""
    cache, outs = executor.cache(ROWS), []
    last = len(tree) if tree else 0
    pieces = [(0, 9, None), *((i, 1, None) for i in range(9, ROWS - last))]
    for start, count, _ in pieces:
        outs.append(forward(executor, cache, x, start, count, range(start, start + count)))
    if tree:
        positions = [ROWS - last + depth(tree, node) for node in range(last)]
        outs.append(forward(executor, cache, x, ROWS - last, last, positions, tree))
    return torch.cat(outs)


def forward(
    executor: Any, cache: Any, x: Tensor, start: int, count: int, positions: Any, tree: tuple[int, ...] | None = None
) -> Tensor:
    rows = SequenceRows(cache, 0, count, start, tree)
    some = dict.fromkeys(("x", "h"), x[start : start + count])
    batch = ForwardBatch(None, torch.tensor(list(positions)), [rows], inputs=some, taps=("out",))
    return executor.run(batch)["out"]


def depth(tree: tuple[int, ...], node: int) -> int:
    return 0 if tree[node] < 0 else depth(tree, tree[node]) + 1


def expand(s: LatentShape, source: RandomTensors, x: Tensor, rotates: bool) -> Tensor:
    """The formula in float64: a key and a value for every head and position."""
    w = {name: m.double() for name, m in source.tensors.items()}
    h = x.double()
    q = (project_queries(w, h) if s.queries else h @ w["attn_q.weight"].T).unflatten(1, (HEADS, -1))
    latent, shared = (h @ w["attn_kv_a_mqa.weight"].T).split([s.rank, s.shared], 1)
    latent = normalise(latent, w["attn_kv_a_norm.weight"])
    plain = torch.einsum("tr,hrp->thp", latent, w["attn_k_b.weight"])
    own, common = q.split([s.plain, s.shared], 2)
    common, shared = (turn(m, s) if rotates else m for m in (common, shared[:, None]))
    keys = torch.cat([plain, shared.expand(-1, HEADS, -1)], 2)
    scores = torch.einsum("qhd,khd->hqk", torch.cat([own, common], 2), keys) * s.key**-0.5
    scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
    values = torch.einsum("tr,hvr->thv", latent, w["attn_v_b.weight"])
    answers = torch.einsum("hqk,khv->qhv", scores.softmax(2), values).flatten(1)
    return h + answers @ w["attn_output.weight"].T


def project_queries(w: dict[str, Tensor], h: Tensor) -> Tensor:
    return normalise(h @ w["attn_q_a.weight"].T, w["attn_q_a_norm.weight"]) @ w["attn_q_b.weight"].T


def normalise(m: Tensor, weight: Tensor) -> Tensor:
    return m * torch.rsqrt(m.square().mean(1, keepdim=True) + EPS) * weight


def turn(m: Tensor, s: LatentShape) -> Tensor:
    """Neighbours in the last dimension rotate together, by the row's position; first members come first then."""
    at = torch.arange(len(m))[:, None, None].double() * angles(s).double()
    a, b = m[..., ::2], m[..., 1::2]
    return torch.cat([a * at.cos() - b * at.sin(), a * at.sin() + b * at.cos()], 2)


@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_latents_give_what_expanded_keys_and_values_give(name, rotates):
    s = SHAPES[name]
    source, x = RandomTensors(s), torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    model, expected = describe(s, source, rotates), expand(s, source, x, rotates)
    outs = [run_rows(Reference(model, source), x)]
    outs += [run_rows(Native(model, source, Options(cache="float32", isa=isa)), x) for isa in native.instruction_sets()]

    assert max((out - expected).abs().max() for out in outs) < 2e-5
    assert all(torch.equal(out, outs[1]) for out in outs[2:])
    if rotates:
        assert (expected - expand(s, source, x, False)).abs().max() > 0.01


@pytest.mark.parametrize("cache", native.CACHES)
@pytest.mark.parametrize("name", SHAPES)
def test_a_path_of_a_tree_has_the_bits_of_its_rows_alone(name, cache):
    """The last six rows as a chain with a twin of every row beside it, rotated by the depth of each."""
    s = SHAPES[name]
    source, x = RandomTensors(s), torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(2))
    model = describe(s, source, True)
    plain = run_rows(Native(model, source, Options(cache=cache)), x)
    twins = x.clone()
    order = [ROWS - 6, ROWS - 6, ROWS - 5, ROWS - 5, ROWS - 4, ROWS - 4]
    twins[ROWS - 6 :] = x[order]
    tree = run_rows(Native(model, source, Options(cache=cache)), twins, (-1, -1, 0, 0, 3, 3))

    assert torch.equal(tree[: ROWS - 6], plain[: ROWS - 6])
    assert all(torch.equal(tree[ROWS - 6 + i], plain[row]) for i, row in enumerate(order))
