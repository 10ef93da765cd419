"""Products over weights in blocks: right for every type, and equal bit for bit with any other rows."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from spec_kernels.ops.dequant import TYPES as BLOCKS
from spec_kernels.ops.dequant import dequantize

from tests.kernels.products import FLOATS, SETS, TYPES, Library, Products, example, portable, widths
from tests.native.compiled import compiler
from tests.native.compiled import library as built
from tests.support.golden import golden

LEVELS = {8: 127, 15: 16319}
BARS = {8: 1e-2, 15: 1e-4, 32: 1e-6}
"""Max root mean square error relative to that of the results, by bits of the activations."""
CASES = [(type, bits) for type in TYPES for bits in widths(type)]
SHAPES = [(16, 32), (1, 192), (50, 576), (33, 256), (7, 2048)]

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(compiler() is None, reason="no C compiler on this machine"),
]


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(built())


@pytest.fixture(scope="module")
def best(library) -> Products:
    return library.products()


def fits(type: str, k: int) -> bool:
    return k % BLOCKS[type].elements == 0


def rows_of(count: int, k: int, seed: int = 0) -> np.ndarray:
    """Rows of normal numbers, some of them much larger than their neighbours."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, k, generator=draw)
    rows[:, :: max(k // 3, 1)] *= 20
    return rows.numpy()


def bits_of(x: np.ndarray) -> np.ndarray:
    """The bits of floats; all NaN are equal."""
    return np.where(np.isnan(x), np.float32(np.nan), x).view(np.int32)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(bits_of(a), bits_of(b))


def round_rows(x: np.ndarray, bits: int) -> np.ndarray:
    """float64 [rows, k]: what rows are after they are quantised."""
    if bits == 32:
        return x.astype(np.float64)
    blocks = x.reshape(len(x), -1, 32)
    top = np.abs(blocks).max(-1, keepdims=True)
    q = np.rint(blocks * (np.float32(LEVELS[bits]) / top))
    return (q.astype(np.float64) * (top / np.float32(LEVELS[bits]))).reshape(x.shape)


@pytest.mark.parametrize("n, k", SHAPES)
@pytest.mark.parametrize("type, bits", CASES)
def test_products_of_quantised_rows_are_exact_but_for_the_rounding_of_sums(library, best, type, bits, n, k):
    if not fits(type, k):
        pytest.skip(f"a row of {k} has no whole blocks of {type}")
    data, x = example(type, n, k), rows_of(11, k)
    w, x_rounded = dequantize(data, type).double().numpy(), round_rows(x, bits)

    error = best.product(library.repack(type, data, k), x, bits) - x_rounded @ w.T

    # The number of a code and the minimum may be much larger than their difference.
    size = np.abs(x_rounded) @ np.abs(w).T + np.abs(x_rounded).sum(1, keepdims=True) * np.abs(w).max()
    assert (np.abs(error) <= 1e-6 * size).all()


@pytest.mark.parametrize("type, bits", CASES)
def test_the_error_of_quantised_rows_is_as_documented(library, best, type, bits):
    data, x = example(type, 50, 1024), torch.randn(20, 1024, generator=torch.Generator().manual_seed(0)).numpy()
    expected = x.astype(np.float64) @ dequantize(data, type).double().numpy().T

    error = best.product(library.repack(type, data, 1024), x, bits) - expected

    assert np.sqrt((error**2).mean() / (expected**2).mean()) < BARS[bits]


@pytest.mark.parametrize("k", [1, 7, 33, 193])
@pytest.mark.parametrize("type", FLOATS)
def test_floats_take_any_number_of_inputs(library, type, k):
    data, x = example(type, 20, k), rows_of(10, k)
    expected = x.astype(np.float64) @ dequantize(data, type).double().numpy().T
    results = [p.product(library.repack(type, data, k), x, 32) for p in library.every()]

    assert np.abs(results[0] - expected).max() < 1e-4
    assert all(same(results[0], other) for other in results[1:])


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("type, bits", CASES)
def test_bits_of_a_row_do_not_depend_on_the_rows_beside_it(library, isa, type, bits):
    products = library.products(isa)
    if products is None:
        pytest.skip(f"this machine has no {isa}")
    matrix, x = library.repack(type, example(type, 40, 256), 256), rows_of(64, 256)
    alone = np.concatenate([products.product(matrix, x[r : r + 1], bits) for r in range(64)])

    for rows in range(1, 65):
        assert same(alone[:rows], products.product(matrix, x[:rows], bits)), rows
    assert same(alone[::-1], products.product(matrix, x[::-1].copy(), bits))


@pytest.mark.parametrize("n, k", SHAPES)
@pytest.mark.parametrize("type, bits", CASES)
def test_every_instruction_set_gives_the_same_bits(library, type, bits, n, k):
    if not fits(type, k):
        pytest.skip(f"a row of {k} has no whole blocks of {type}")
    matrix, x = library.repack(type, example(type, n, k), k), rows_of(13, k)
    results = {p.isa: p.product(matrix, x, bits) for p in library.every()}

    assert "generic" in results
    for isa, result in results.items():
        assert same(results["generic"], result), isa


@pytest.mark.parametrize("type, bits", CASES)
def test_any_bytes_are_multiplied_to_the_same_result_everywhere(library, type, bits):
    """Scales that are NaN, infinite, subnormal or negative."""
    draw = torch.Generator().manual_seed(1)
    data = torch.randint(0, 256, (64, BLOCKS[type].row_bytes(512)), dtype=torch.uint8, generator=draw)
    matrix, x = library.repack(type, data, 512), rows_of(9, 512)
    results = [p.product(matrix, x, bits) for p in library.every()]

    assert np.isnan(results[0]).any()
    assert all(same(results[0], other) for other in results[1:])


def test_plain_c_gives_the_same_bits_as_instructions(library):
    plain = Library(portable()).products("generic")
    for type, bits in CASES:
        matrix, x = library.repack(type, example(type, 16, 256), 256), rows_of(5, 256)

        assert same(library.products("generic").product(matrix, x, bits), plain.product(matrix, x, bits)), type


@pytest.mark.parametrize("type, bits", [("Q4_1", 15), ("Q6_K", 8), ("F16", 32)])
def test_tiles_asked_for_in_parts_have_the_bits_of_all_at_once(library, type, bits):
    """40 tiles with 19 rows: several groups of rows, several chunks of tiles."""
    matrix = library.repack(type, example(type, 640, 256), 256)
    for products in library.every():
        qrows = products.quantise(rows_of(19, 256), bits)
        whole = products.tiles(matrix, qrows, 0, 40)
        parts = [products.tiles(matrix, qrows, at, count) for at, count in [(0, 1), (1, 23), (24, 16)]]

        assert same(whole, np.concatenate(parts))


@pytest.mark.parametrize("bits", [8, 15, 32])
def test_gathered_rows_are_the_rows(library, bits):
    type = "F32" if bits == 32 else "Q8_0"
    matrix, x = library.repack(type, example(type, 16, 96), 96), rows_of(21, 96)
    which = [20, 3, 3, 0, 16, 8, 7, 15, 9, 20]
    for products in library.every():
        gathered = products.gather(products.quantise(x, bits), which)

        assert same(products.product(matrix, x[which], bits), products.of_planes(matrix, gathered))


def test_rows_may_lie_apart(library, best):
    matrix, wide = library.repack("Q8_0", example("Q8_0", 16, 64), 64), rows_of(5, 100)

    assert same(best.product(matrix, wide[:, :64].copy(), 15), best.product(matrix, wide[:, :64], 15))


# -- matrices --


@pytest.mark.parametrize("type", TYPES)
def test_rows_are_bit_for_bit_what_blocks_dequantise_to(library, type):
    data = example(type, 21, 512)

    assert same(dequantize(data, type).numpy(), library.rows(library.repack(type, data, 512)))


@pytest.mark.parametrize("type", ["F16", "BF16"])
def test_every_half_is_widened_exactly(library, type):
    data = torch.arange(1 << 16).to(torch.uint16).view(torch.uint8).reshape(1024, -1)
    expected = dequantize(data, type)

    assert same(expected.numpy(), library.rows(library.repack(type, data, 64)))
    data.view(torch.int16)[~expected.isfinite()] = 0
    numbers = dequantize(data, type).numpy()
    for products in library.every():
        columns = products.product(library.repack(type, data, 64), np.eye(64, dtype=np.float32), 32)

        assert np.array_equal(numbers.T, columns)


@pytest.mark.parametrize("type", [t for t in TYPES if t not in FLOATS])
def test_golden_matrices_are_read_row_by_row(library, type):
    tensors = load_file(golden("quant") / "golden.safetensors")
    names = [name for name in tensors if name.endswith(f".{type}.bytes")]
    for name in names:
        expected = tensors[name.replace("bytes", "dequant")]

        assert same(expected.numpy(), library.rows(library.repack(type, tensors[name], expected.shape[1]))), name
    assert names


@pytest.mark.parametrize("type", TYPES)
def test_rows_are_taken_in_the_order_asked_for_and_missing_ones_are_zero(library, best, type):
    data, order = example(type, 9, 256), [8, -1, 0, 0, 3, *range(9), -1, 5, 4]
    chosen = torch.cat([dequantize(data, type), torch.zeros(1, 256)])[order].numpy()
    matrix = library.repack(type, data, 256, order)

    assert np.array_equal(chosen, library.rows(matrix))
    product = best.product(matrix, rows_of(3, 256), widths(type)[-1])
    assert not product[:, [1, 14]].any()
    assert same(product[:, 2], product[:, 3])


@pytest.mark.parametrize("type", TYPES)
def test_outputs_beyond_the_last_are_zero(library, best, type):
    matrix = library.repack(type, example(type, 17, 256), 256)
    qrows = best.quantise(rows_of(9, 256), widths(type)[-1])

    assert not best.tiles(matrix, qrows, 1, 1)[:, :, 1:].any()


@pytest.mark.parametrize("k", [-32, 0, 1, 31, 33, (1 << 24) + 256])
def test_widths_that_blocks_cannot_have_are_refused(library, k):
    refused = TYPES if k < 1 or k > 1 << 24 else [t for t in TYPES if t not in FLOATS]

    assert [t for t in TYPES if library.tile_bytes(t, k) == 0] == refused
    assert [t for t in TYPES if library.c.spec_row_bytes(TYPES.index(t), k) == 0] == refused
    assert library.c.spec_repack(TYPES.index(refused[0]), None, 0, None, 16, k, None) == -1
    assert library.c.spec_requantise_q8_0(None, 0, None, 16, k, None) == -1


def test_rows_of_super_blocks_must_be_whole(library):
    assert [t for t in TYPES if library.tile_bytes(t, 288) == 0] == ["Q4_K", "Q5_K", "Q6_K"]


def test_unknown_types_and_no_rows_are_refused(library):
    assert library.c.spec_tile_bytes(-1, 256) == 0
    assert library.c.spec_tile_bytes(len(TYPES), 256) == 0
    assert library.c.spec_repack(0, None, 0, None, 0, 32, None) == -1


@pytest.mark.parametrize("scale", [3e-7, 1e-3, 1.0, 6e5, 1e9, 1e37])
def test_requantised_rows_are_those_of_ggml(library, scale):
    rows = (torch.randn(33, 320, generator=torch.Generator().manual_seed(0)) * scale).numpy()
    rows[0, 32:64] = 0
    with np.errstate(over="ignore"):
        blocks = torch.from_numpy(gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q8_0))

    assert np.array_equal(library.repack("Q8_0", blocks, 320).tiles, library.requantise(rows).tiles)


@pytest.mark.parametrize("size", [1e-45, 1e-40])
def test_rows_too_small_for_a_scale_become_zeros(library, size):
    assert not library.rows(library.requantise(np.full((1, 32), size, np.float32))).any()


def test_requantised_halves_are_rounded_away_from_zero(library):
    rows = np.zeros((1, 32), np.float32)
    rows[0, :7] = [127, 2.5, -2.5, 0.5, 1.4999999, 0.49999997, -126.5]

    assert library.rows(library.requantise(rows))[0, :7].tolist() == [127, 3, -3, 1, 1, 0, -127]


def test_requantised_rows_that_are_not_finite_become_nan(library):
    rows = np.full((3, 64), 127, np.float32)
    rows[0, 3], rows[1, 40] = np.nan, np.inf
    out = library.rows(library.requantise(rows))

    assert np.isnan(out[0, :32]).all() and np.isnan(out[1, 32:]).all()
    assert np.array_equal(out[0, 32:], rows[0, 32:]) and np.array_equal(out[2], rows[2])


# -- rows --


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bits", [8, 15])
def test_a_row_that_is_not_finite_is_nan_and_others_are_not(library, bits, value):
    matrix, x = library.repack("Q4_0", example("Q4_0", 16, 96), 96), rows_of(4, 96)
    x[2, 50] = value
    for products in library.every():
        y = products.product(matrix, x, bits)

        assert np.isnan(y).any(1).tolist() == [False, False, True, False]
        assert np.isnan(y[2]).all()


@pytest.mark.parametrize("bits", [8, 15])
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-40, 9e-31])
def test_rows_of_almost_nothing_are_zero(library, bits, size):
    matrix = library.repack("Q4_1", example("Q4_1", 16, 64), 64)
    for products in library.every():
        assert not products.product(matrix, np.full((2, 64), size, np.float32), bits).any()


@pytest.mark.parametrize("bits", [8, 15])
@pytest.mark.parametrize("size", [1e-29, 1.0, 3.4e38])
def test_rows_of_any_size_are_multiplied(library, bits, size):
    """The largest number of a block has the largest integer, without an overflow at either end."""
    ones = np.zeros((1, 2 + 32), np.uint8)
    ones[:, :2], ones[:, 2] = np.array([1.0], np.float16).view(np.uint8), 1
    matrix = library.repack("Q8_0", torch.from_numpy(ones), 32)
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = size
    for products in library.every():
        assert np.allclose(products.product(matrix, x, bits), size, rtol=1e-6, atol=0)


def test_extremes_of_codes_and_activations_do_not_overflow(library):
    """All codes and all activations at their limits, for the largest possible sums."""
    x = np.repeat(np.array([[1.0], [-1.0]], np.float32), 256, 1)
    for type in (t for t in TYPES if t not in FLOATS):
        for byte in (0, 0x7F, 0x80, 0xFF):
            data = torch.full((16, BLOCKS[type].row_bytes(256)), byte, dtype=torch.uint8)
            blocks = data.view(16, -1, BLOCKS[type].bytes)
            for at in (208,) if type == "Q6_K" else (0, 2) if type in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else (0,):
                blocks[..., at : at + 2] = torch.tensor([0, 0x3C], dtype=torch.uint8)
            expected = x.astype(np.float64) @ dequantize(data, type).double().numpy().T
            for products in library.every():
                for bits in (8, 15):
                    y = products.product(library.repack(type, data, 256), x, bits)

                    assert np.allclose(y, expected, rtol=1e-5, atol=1e-5), (type, byte, products.isa, bits)


def test_an_unknown_instruction_set_has_no_products(library):
    assert library.products("sse9") is None
    assert library.products().isa == library.every()[0].isa
