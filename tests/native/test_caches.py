"""Caches whose layers differ in shape: what is read is what was stored, also enlarged, copied and compacted."""

from __future__ import annotations

import itertools

import pytest
import torch
from attended import in_bytes
from spec_kernels import native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Input, Model, Store, Tap
from spec_kernels.model.reference import Reference
from spec_kernels.model.shapes import HeadShape
from spec_kernels.native.executor import Native, Options
from spec_kernels.native.native_cache import place_bytes
from torch import Tensor

from tests.native.weightless import Nothing

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
SHAPES = tuple(
    HeadShape(k, k, dim, 0, 1.0, latent=latent)
    for k, dim, latent in (
        *((2, 6, 0), (1, 33, 20), (3, 322, 0), (1, 33, 0), (1, 576, 512), (1, 512, 0), (1, 1, 1), (5, 16, 0)),
    )
)
"""The second and others hold latents; the fourth has keys of the same width."""
ROWS, PLACES = 37, 45
FORMS = ("reference", *native.CACHES)


def fill_cache(form: str):
    """A cache with random rows, and the keys and values [K, ROWS, D] of every layer that were stored."""
    values = [Input(f"{part}{i}", s.kv_width) for i, s in enumerate(SHAPES) for part in "kv"]
    stores = [Store(f"k{i}", None if s.latent else f"v{i}", s, i) for i, s in enumerate(SHAPES)]
    model = Model((*values, *stores, Tap("k0", "t")))
    executor = Reference(model, Nothing()) if form == "reference" else Native(model, Nothing(), Options(cache=form))
    torch.manual_seed(0)
    inputs = {op.out: torch.randn(ROWS, op.width) * 3 for op in values}
    cache = executor.cache(PLACES)
    for start, rows in ((0, 17), (17, 1), (18, ROWS - 18)):
        some = {name: rows_of[start : start + rows] for name, rows_of in inputs.items()}
        batch = ForwardBatch(
            None, torch.arange(start, start + rows), [SequenceRows(cache, 0, rows, start)], inputs=some
        )
        executor.run(batch)
    heads = lambda part, i: inputs[f"{part}{i}"].unflatten(1, (SHAPES[i].kv_heads, -1)).transpose(0, 1)
    return cache, [(heads("k", i), heads("v", i)) for i in range(len(SHAPES))]


def round_latents(rows: Tensor, form: str, latent: int) -> Tensor:
    """Keys that hold latents: one scale from the block on in which the latent begins."""
    begin = (rows.shape[-1] - latent) // 32 * 32
    return torch.cat([round_rows(rows[..., :begin], form, 32), round_rows(rows[..., begin:], form, 1024)], -1)


def round_rows(rows: Tensor, form: str, block: int) -> Tensor:
    """Rows as a cache of this form holds them. block: dimensions that share a scale."""
    if form == "float16":
        return rows.half().float()
    if form != "q8":
        return rows
    integers, scale = in_bytes(rows.numpy(), block)
    return torch.from_numpy(integers * scale).float()


def assert_holds(cache, layers: list[tuple[Tensor, Tensor]], form: str, places: list[int]) -> None:
    """Raise AssertionError unless the first rows of every layer are ``places`` of what was stored."""
    assert cache.layers == len(layers)
    for layer, (keys, values) in enumerate(layers):
        held = cache.read(layer, len(places))
        if latent := SHAPES[layer].latent:
            assert torch.equal(held[1], held[0][..., -latent:])
            assert torch.equal(held[0], round_latents(keys, form, latent)[:, places])
            continue
        whole = -(-values.shape[-1] // 16) * 16
        for have, rows, block in zip(held, (keys, values), (32, whole), strict=True):
            assert torch.equal(have, round_rows(rows, form, block)[:, places]), f"layer {layer}"


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_is_what_was_stored(form):
    cache, layers = fill_cache(form)

    assert_holds(cache, layers, form, list(range(ROWS)))
    assert_holds(cache, layers, form, [0])
    for layer, start in itertools.product(range(cache.layers), (1, 15, 16, 17, ROWS - 1, ROWS)):
        for part, whole in zip(cache.read(layer, ROWS, start), cache.read(layer, ROWS), strict=True):
            assert torch.equal(part, whole[:, start:])
    assert_holds(cache, layers, form, [])


@pytest.mark.parametrize("form", FORMS)
def test_an_enlarged_cache_holds_the_rows_of_all_layers(form):
    cache, layers = fill_cache(form)

    assert not cache.reserve(PLACES)
    assert cache.reserve(90)
    assert cache.length >= 90
    assert_holds(cache, layers, form, list(range(ROWS)))


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_has_rows_of_its_own(form):
    cache, layers = fill_cache(form)
    copy = cache.copy()
    copy.compact(0, [30])

    assert_holds(cache, layers, form, list(range(ROWS)))
    assert_holds(copy, layers, form, [30, *range(1, ROWS)])


@pytest.mark.parametrize("form", FORMS)
def test_a_kept_path_is_moved_together_in_all_layers(form):
    """Within a tile of 16 places, and from later ones."""
    cache, layers = fill_cache(form)
    cache.compact(13, [14, 15, 16, 20, 31, 36])

    assert_holds(cache, layers, form, [*range(13), 14, 15, 16, 20, 31, 36, *range(19, ROWS)])


@pytest.mark.parametrize("form", FORMS)
def test_latents_take_the_memory_of_keys_alone(form):
    """Beside the padding of 16 places, and of values to 16 numbers."""
    shapes = [HeadShape(4, 1, 576, 64, 1.0, latent=latent) for latent in (512, 0)]
    sizes = []
    for shape in shapes:
        model = Model((Input("k", 576), Store("k", None if shape.latent else "k", shape, 0), Tap("k", "t")))
        executor = Reference(model, Nothing()) if form == "reference" else Native(model, Nothing(), Options(cache=form))
        sizes.append(executor.cache(160).nbytes)

    assert sizes[0] < 0.52 * sizes[1]
    if form != "reference":
        assert sizes[0] == 160 * place_bytes(form, shapes[0])
