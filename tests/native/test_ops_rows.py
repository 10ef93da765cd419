"""Norms, rotation, gates, conversions and the largest of a row, against formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ops_library import at, each_isa, here, same, table
from spec_kernels.ops.rms_norm import rms_norm
from spec_kernels.ops.rope import rope

pytestmark = pytest.mark.compiles

WIDTHS = (1, 7, 16, 63, 64, 192, 577)
FUNCTIONS = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "tanh": np.tanh,
}
ERRORS = {"exp": 1, "sigmoid": 3, "silu": 4, "softplus": 3, "tanh": 3}
"""Units in the last place."""


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def apply(isa: str, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    table(isa).apply(list(FUNCTIONS).index(name), at(x), x.size, at(y))
    return y


def norm(isa: str, x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
    y = np.full_like(x, np.nan)
    table(isa).norm(at(x), x.shape[1], at(weight), eps, *x.shape, at(y), x.shape[1])
    return y


def ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the wanted number, float64."""
    return np.abs(got - expected) / np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)


@each_isa
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_exact_as_stated(isa, name):
    low, high = (-86.9, 87.9) if name == "exp" else (-80, 87.9)
    x = np.linspace(low, high, 100_003, dtype=np.float32)
    x = np.concatenate([x, np.linspace(-1, 1, 50_001, dtype=np.float32), normal(1000) * 1e-4])

    assert ulps(apply(isa, name, x), FUNCTIONS[name](x.astype(np.float64))).max() <= ERRORS[name]


@each_isa
def test_functions_at_their_ends(isa):
    x = np.array([-np.inf, -1e30, -100, 0, 100, 1e30, np.inf], dtype=np.float32)

    assert apply(isa, "exp", x).tolist() == [0, 0, 0, 1, np.inf, np.inf, np.inf]
    assert apply(isa, "sigmoid", x).tolist() == [0, 0, 0, 0.5, 1, 1, 1]
    assert apply(isa, "silu", x)[1:].tolist() == [0, 0, 0, 100, np.float32(1e30), np.inf]
    assert apply(isa, "softplus", x).tolist() == [0, 0, 0, np.float32(np.log(2)), 100, np.float32(1e30), np.inf]
    assert apply(isa, "tanh", x).tolist() == [-1, -1, -1, 0, 1, 1, 1]
    for name in FUNCTIONS:
        assert np.isnan(apply(isa, name, np.full(3, np.nan, np.float32))).all()


@each_isa
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_norm_is_the_reference(isa, width, eps):
    x, weight = normal(5, width), normal(width, seed=1)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + eps) * weight

    got = norm(isa, x, weight, eps)

    assert np.abs(got - expected).max() <= 4e-7 * np.abs(expected).max()
    np.testing.assert_allclose(got, rms_norm(torch.tensor(x), torch.tensor(weight), eps), rtol=2e-6, atol=1e-6)
    assert same(norm(isa, x, None, eps), norm(isa, x, np.ones(width, np.float32), eps))


@each_isa
def test_norm_of_a_row_is_the_same_alone_and_in_place(isa):
    x, weight = normal(9, 200), normal(200)
    together = norm(isa, x, weight, 1e-6)
    alone = np.concatenate([norm(isa, x[r : r + 1], weight, 1e-6) for r in range(9)])
    table(isa).norm(at(x), 200, at(weight), 1e-6, 9, 200, at(x), 200)

    assert same(together, alone)
    assert same(together, x)


@each_isa
@pytest.mark.parametrize("dim, rotated", [(64, 64), (64, 0), (256, 64), (24, 10), (2, 2), (128, 126)])
@pytest.mark.parametrize("normed", [True, False])
def test_heads_are_normalised_and_turned(isa, dim, rotated, normed):
    rows, heads = 3, 5
    x, weight = normal(rows, heads + 2, dim), normal(dim, seed=1)
    positions, turns = torch.arange(rows) * 40, torch.rand(rotated // 2)
    angles = positions.float()[:, None] * turns
    cos, sin = angles.cos().numpy(), angles.sin().numpy()
    expected = torch.tensor(x[:, :heads])
    expected = rms_norm(expected, torch.tensor(weight), 1e-6) if normed else expected
    expected = rope(expected, positions, turns, "halves") if rotated else expected

    got = x.copy()
    table(isa).heads(
        at(got),
        x[0].size,
        rows,
        heads,
        dim,
        at(weight) if normed else None,
        1e-6,
        at(cos),
        at(sin),
        rotated // 2,
        rotated,
    )

    np.testing.assert_allclose(got[:, :heads], expected.numpy(), rtol=1e-5, atol=2e-6)
    assert same(got[:, heads:], x[:, heads:])


@each_isa
@pytest.mark.parametrize("dim", [32, 128, 20])
def test_unit_heads_have_the_length_that_is_asked_for(isa, dim):
    x = normal(4, 3, dim)
    wide = x.astype(np.float64)
    expected = wide * 0.25 / np.sqrt((wide**2).sum(-1, keepdims=True) + 1e-6)
    table(isa).unit(at(x), 3 * dim, 4, 3, dim, 1e-6, 0.25)

    np.testing.assert_allclose(x, expected, rtol=1e-6, atol=1e-7)


@each_isa
@pytest.mark.parametrize("dim", [32, 128, 20])
def test_gated_norm_normalises_before_it_gates(isa, dim):
    o, z, weight = normal(4, 3, dim), normal(4, 3, dim, seed=1), normal(dim, seed=2)
    wide = o.astype(np.float64)
    expected = (
        wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * weight * FUNCTIONS["silu"](z.astype(np.float64))
    )
    table(isa).gated_norm(at(o), 3 * dim, at(z), 3 * dim, at(weight), 1e-6, 4, 3, dim, at(o), 3 * dim)

    np.testing.assert_allclose(o, expected, rtol=2e-6, atol=1e-6)


@each_isa
@pytest.mark.parametrize("width", WIDTHS)
def test_gates_and_sums_are_formulas(isa, width):
    a, b, s = normal(3, width), normal(3, width, seed=1), normal(3, seed=2)
    out, product, added, scaled = np.empty_like(a), np.empty_like(a), a.copy(), a.copy()
    dots = np.empty(3, np.float32)
    ops = table(isa)
    ops.glu(0, 0.0, at(a), width, at(b), width, 3, width, at(out), width)
    ops.multiply(at(a), width, at(b), width, 3, width, at(product), width)
    ops.add(at(added), width, at(b), 0, None, 3, width)
    ops.add(at(scaled), width, at(b), width, at(s), 3, width)
    ops.dot(at(a), width, at(b), width, 3, width, at(dots))

    wide, other = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(out, FUNCTIONS["silu"](wide) * other, rtol=1e-6)
    assert same(product, a * b)
    assert same(added, a + b[0])
    assert same(scaled, a + b * s[:, None])
    np.testing.assert_allclose(dots, (wide * other).sum(1), atol=1e-5)


def naive_gate(by: str, x: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """Each number of a row's gate times one part of the row, in float64."""
    parts = x.astype(np.float64).reshape(len(x), gate.shape[1], -1)
    return (parts * FUNCTIONS[by](gate.astype(np.float64))[:, :, None]).reshape(x.shape)


@each_isa
@pytest.mark.parametrize("by", ["sigmoid", "silu", "softplus"])
@pytest.mark.parametrize("gates, part", [(1, 1), (1, 577), (4, 16), (17, 7), (48, 128), (200, 1)])
def test_a_gate_applies_to_its_part_of_a_row(isa, gates, part, by):
    """Also of rows that lie apart, and of large gates; the bits equal a row's alone."""
    x, gate = normal(3, gates * part + 5), 6 * normal(3, gates + 2, seed=1)
    rows, got = x[:, : gates * part], x.copy()
    gate[:, 0] = [-200, 0, 200]
    function = list(FUNCTIONS).index(by)
    table(isa).gate(function, at(got), x.shape[1], at(gate), gate.shape[1], 3, gates * part, gates)
    alone = x[1].copy()
    table(isa).gate(function, at(alone), x.shape[1], at(gate[1]), gate.shape[1], 1, gates * part, gates)

    np.testing.assert_allclose(got[:, : gates * part], naive_gate(by, rows, gate[:, :gates]), rtol=1e-6, atol=1e-30)
    assert same(got[:, gates * part :], x[:, gates * part :])
    assert same(got[1], alone)


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def clamp(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    gate = np.minimum(gate, 7)
    return gate / (1 + np.exp(-1.702 * gate)) * (np.clip(up, -7, 7) + 1)


LIMIT = 3.0


def limit(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return FUNCTIONS["silu"](np.minimum(gate, LIMIT)) * np.clip(up, -LIMIT, LIMIT)


UNITS = [
    lambda g, u: FUNCTIONS["silu"](g) * u,
    lambda g, u: gelu(g) * u,
    clamp,
    lambda g, u: np.maximum(g, 0) * u,
    limit,
]


@each_isa
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("by", range(5), ids=["silu", "gelu", "clamped", "relu", "limited"])
def test_gated_units_are_formulas_also_where_they_are_clamped(isa, width, by):
    gate, up = 6 * normal(3, width), 6 * normal(3, width, seed=1)
    out, y = np.empty_like(gate), np.full((2, 2, 3, 16), np.nan, np.float32)
    table(isa).glu(by, LIMIT, at(gate), width, at(up), width, 3, width, at(out), width)
    expected = UNITS[by](gate.astype(np.float64), up.astype(np.float64))

    np.testing.assert_allclose(out, expected, rtol=3e-6, atol=1e-6)

    count = min(width, 32)
    for tile in range(2):
        for part, whole in enumerate((gate, up)):
            piece = whole[:, 16 * tile : min(16 * tile + 16, count)]
            y[tile, part, :, : piece.shape[1]] = piece
    laid = np.empty((3, 32), np.float32)
    table(isa).lay_pairs(by, LIMIT, at(y), 2, 3, at(laid), 32)
    assert same(np.ascontiguousarray(laid[:, :count]), np.ascontiguousarray(out[:, :count]))


@each_isa
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("cap", [0.5, 30.0])
def test_a_soft_cap_is_a_tanh(isa, width, cap):
    x = 40 * normal(3, width)
    got = x.copy()
    table(isa).softcap(at(got), width, 3, width, cap)

    np.testing.assert_allclose(got, cap * np.tanh(x.astype(np.float64) / cap), rtol=1e-6)
    assert np.abs(got).max() <= cap


HALVES = np.arange(65536, dtype=np.uint16)


@each_isa
@pytest.mark.parametrize("kind, dtype", [(1, torch.float16), (2, torch.bfloat16)])
def test_every_number_of_sixteen_bits_is_widened_exactly(isa, kind, dtype):
    y = np.empty(65536, np.float32)
    table(isa).widen(kind, at(HALVES), 65536, at(y))
    expected = torch.tensor(HALVES.view(np.int16)).view(dtype).float().numpy()

    known = ~np.isnan(expected)
    assert same(y[known], expected[known])
    assert np.isnan(y[~known]).all()


def awkward() -> np.ndarray:
    """Numbers around every half, ties among them, tiny and huge ones."""
    halves = HALVES.view(np.float16).astype(np.float32)
    halves = np.unique(halves[np.isfinite(halves)])
    ties = (halves[1:] + halves[:-1]) / 2
    near = [np.nextafter(ties, np.float32(s)) for s in (-np.inf, np.inf)]
    return np.concatenate([halves, ties, *near, normal(999) * 1e30, normal(999) * 1e-38, [-0.0]]).astype(np.float32)


@each_isa
def test_numbers_are_rounded_to_sixteen_bits_as_ieee_does(isa):
    x = awkward()
    half, brain = np.empty(x.size, np.uint16), np.empty(x.size, np.uint16)
    table(isa).narrow(1, at(x), x.size, at(half))
    table(isa).narrow(2, at(x), x.size, at(brain))

    assert same(half, np.clip(x, -65504, 65504).astype(np.float16).view(np.uint16))
    assert same(brain, torch.tensor(x).bfloat16().view(torch.int16).numpy().view(np.uint16))


@each_isa
def test_nan_stays_when_it_is_narrowed(isa):
    x, out = np.full(20, np.nan, np.float32), np.zeros(20, np.uint16)
    for kind, dtype in ((1, torch.float16), (2, torch.bfloat16)):
        table(isa).narrow(kind, at(x), 20, at(out))
        assert torch.tensor(out.view(np.int16)).view(dtype).isnan().all()


@each_isa
@pytest.mark.parametrize("count", [1, 15, 1024, 3072, 5001])
def test_argmax_is_the_first_of_the_largest(isa, count):
    x = np.round(normal(count), 1)
    for _ in range(8):
        assert table(isa).argmax(at(x), count) == int(x.argmax())
        x[x.argmax()] = np.nan
        x = np.where(np.isnan(x), np.float32(-np.inf), x)
        x = np.roll(x, 7)


@each_isa
def test_argmax_passes_nan(isa):
    x = np.full(40, np.nan, np.float32)
    assert table(isa).argmax(at(x), 40) == 0
    x[33] = -np.inf
    assert table(isa).argmax(at(x), 40) == 33
    x[[35, 36]] = -3
    assert table(isa).argmax(at(x), 40) == 35


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_same_bits_on_every_instruction_set(name):
    x = np.concatenate([normal(5003) * s for s in (1e-30, 1e-3, 1, 30, 1e30)])
    first, *others = (apply(isa, name, x) for isa in here())

    assert all(same(first, other) for other in others)


@pytest.mark.parametrize("width", WIDTHS)
def test_norms_have_the_same_bits_on_every_instruction_set(width):
    x, weight = normal(4, width), normal(width)
    first, *others = (norm(isa, x, weight, 1e-6) for isa in here())

    assert all(same(first, other) for other in others)


@each_isa
def test_flushing_subnormals_to_zero_changes_no_bits(isa):
    x = np.concatenate([np.linspace(-100, 100, 9_999, dtype=np.float32), normal(999)])
    plain = [apply(isa, name, x) for name in FUNCTIONS] + [widen(isa)]
    assert torch.set_flush_denormal(True)
    try:
        flushed = [apply(isa, name, x) for name in FUNCTIONS] + [widen(isa)]
    finally:
        torch.set_flush_denormal(False)

    assert all(same(a, b) for a, b in zip(plain, flushed, strict=True))


def widen(isa: str) -> np.ndarray:
    """All finite numbers of float16."""
    y = np.empty(0x7C00, np.float32)
    table(isa).widen(1, at(HALVES), 0x7C00, at(y))
    return y


@each_isa
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_rows", [False, True])
def test_tiles_of_a_product_become_rows(isa, rows, with_bias, with_rows):
    tiles, stride = 3, 64
    y, bias, old = normal(tiles, rows, 16), normal(tiles * 16, seed=1), normal(rows, stride, seed=2)
    out = np.full((rows, stride), 7, np.float32)
    rows_of = y.transpose(1, 0, 2).reshape(rows, tiles * 16)
    expected = rows_of + bias if with_bias else rows_of
    expected = expected + old[:, : tiles * 16] if with_rows else expected

    table(isa).lay_down(
        at(y), tiles, rows, at(bias if with_bias else None), at(old if with_rows else None), stride, at(out), stride
    )

    assert same(out[:, : tiles * 16], expected)
    assert (out[:, tiles * 16 :] == 7).all()


@each_isa
@pytest.mark.parametrize("rows", [1, 5])
def test_pairs_of_tiles_become_rows(isa, rows):
    pairs, stride = 2, 48
    y, out = normal(pairs, 2, rows, 16), np.full((rows, stride), 7, np.float32)
    silu = apply(isa, "silu", np.ascontiguousarray(y[:, 0])).reshape(pairs, rows, 16)

    table(isa).lay_pairs(0, 0.0, at(y), pairs, rows, at(out), stride)

    assert same(out[:, : 16 * pairs], (silu * y[:, 1]).transpose(1, 0, 2).reshape(rows, -1))
    assert (out[:, 16 * pairs :] == 7).all()
