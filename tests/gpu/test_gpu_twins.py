"""Every kernel of whole forwards against its naive twin: odd sizes, strides, rows that only fill a step.

In triton's interpreter where there is no device. Memory that a kernel must not read is NaN, and memory that it must not
write is compared.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.block_conv import convolve_block
from spec_kernels.gpu.clusters import BestClusters, find_best_clusters, mask_clusters
from spec_kernels.gpu.embedding import embed
from spec_kernels.gpu.head_products import multiply_heads
from spec_kernels.gpu.heads import Heads, Rotary, measure_rows, store_heads
from spec_kernels.gpu.layout import BASE, BEYOND, FIELDS, LAST, LINE, PLACE, POSITION, SEEN, Chunk, Layout, Size
from spec_kernels.gpu.layout import sequence_tiles as tiles_of
from spec_kernels.gpu.pages import PagedCache
from spec_kernels.gpu.pool import CacheShape, Pool
from spec_kernels.gpu.products import multiply, multiply_gated, padded_rows, parts_of
from spec_kernels.gpu.relative import add_relative
from spec_kernels.gpu.repack import Matrix
from spec_kernels.gpu.rows import FUNCTIONS, combine_rows
from spec_kernels.gpu.scores import Attention, Sums, attend
from spec_kernels.gpu.sums import Norm, Parts, add_parts
from spec_kernels.gpu.tiles import PAGE, tile_of
from spec_kernels.model.batch import SequenceRows
from spec_kernels.model.shapes import HeadShape
from torch import Tensor

from tests.support.gpu_twins import (
    naive_add_parts,
    naive_attend,
    naive_combine_rows,
    naive_embed,
    naive_measure_rows,
    naive_multiply,
    naive_multiply_gated,
    naive_multiply_heads,
    naive_store_heads,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NAN = float("nan")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size, device=DEVICE)


def close(kernel: torch.Tensor, twin: torch.Tensor, ratio: float = 2e-6) -> None:
    """Equal but for rounding, NaN in the same places."""
    assert torch.equal(kernel.isnan(), twin.isnan())
    difference = (kernel - twin).nan_to_num().norm() / twin.nan_to_num().norm()
    assert difference <= ratio


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("indexed", [False, True])
def test_rows_are_combined(function, indexed):
    x, y = randn(9, 70)[:, 3:69], randn(9, 66)
    index = torch.tensor([8, 0, 8, 3, 1], dtype=torch.int32, device=DEVICE) if indexed else None
    outs = [torch.full((9, 80), NAN, device=DEVICE) for _ in range(2)]
    for out, run in zip(outs, (combine_rows, naive_combine_rows), strict=True):
        run(function, out[:5, 4:70], x, None if function in ("copy", "cap") else y, index, 1.5)
    close(*outs)


@pytest.mark.parametrize("gates", [1, 5, 40])
@pytest.mark.parametrize("function", ["sigmoid", "silu", "softplus", "identity"])
def test_a_gate_of_fewer_columns_applies_to_parts_of_a_row(function, gates):
    x, gate = randn(5, 40), 20 * randn(5, gates)
    outs = torch.empty(5, 40, device=DEVICE), torch.empty(5, 40, device=DEVICE)
    combine_rows(function, outs[0], x, gate)
    naive_combine_rows(function, outs[1], x, gate)
    close(*outs)


def test_tokens_are_embedded():
    fields = torch.zeros(5, FIELDS, dtype=torch.int32, device=DEVICE)
    fields[:, 0] = torch.tensor([4, 0, -1, 6, 6])
    outs = [torch.full((16, 36), NAN, device=DEVICE) for _ in range(2)]
    table = Matrix.of(randn(7, 36))
    embed(fields[:, 0], table, outs[0], 3.0)
    naive_embed(fields[:, 0], table, outs[1], 3.0)
    close(*outs)


PARTS = {
    "sum": {"base": True, "total": True},
    "sum-of-one": {"total": True},
    "norm-alone": {"parts": 0, "base": True, "outer": 44},
    "sum-and-norm": {"base": True, "total": True, "outer": 44},
    "both-norms": {"base": True, "total": True, "inner": 44, "outer": 44, "bias": True},
    "heads": {"parts": 0, "base": True, "outer": 11},
    "groups": {"parts": 0, "base": True, "outer": 44, "groups": 4},
    "groups-of-heads": {"parts": 0, "base": True, "outer": 22, "groups": 2},
    "scaled": {"base": True, "total": True, "inner": 44, "outer": 44, "scale": 0.3},
    "four": {"parts": 4, "base": True, "total": True, "outer": 44, "bias": True},
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_are_added_and_normalised(case):
    how = {"parts": 2, "base": False, "total": False, "inner": 0, "outer": 0, "bias": False}
    how |= {"groups": 1, "scale": 1.0} | PARTS[case]
    parts = Parts(randn(how["parts"], 16, 44), randn(44) if how["bias"] else None) if how["parts"] else None
    norm = lambda width, groups=1: Norm(randn(width), 1e-5, groups) if width else None
    inner, outer, base = norm(how["inner"]), norm(how["outer"], how["groups"]), randn(16, 44) if how["base"] else None
    results = []
    for run in (add_parts, naive_add_parts):
        total = torch.full((16, 44), NAN, device=DEVICE) if how["total"] else None
        out = torch.full((16, 44), NAN, device=DEVICE) if outer else None
        run(7, parts, base, inner, total, outer, out, how["scale"])
        results.append([m for m in (total, out) if m is not None])
    for kernel, twin in zip(*results, strict=True):
        close(kernel, twin)


@pytest.mark.parametrize(("rows", "n", "k"), [(1, 64, 512), (5, 50, 40), (20, 128, 1024), (130, 33, 96)])
def test_products_and_gated_ones(rows, n, k):
    x, weight = torch.full((padded_rows(rows), k), NAN, device=DEVICE), randn(2 * n, k)
    x[:rows] = randn(rows, k)
    single, pair = Matrix.of(weight[:n]), Matrix.of(weight)
    outs = [torch.empty(parts_of(single), padded_rows(rows), n, device=DEVICE) for _ in range(2)]
    multiply(x, single, outs[0])
    naive_multiply(x, single, outs[1])
    close(outs[0], outs[1])
    gated = [torch.empty(padded_rows(rows), n, device=DEVICE) for _ in range(2)]
    multiply_gated(x, pair, gated[0], "silu_glu")
    naive_multiply_gated(x, pair, gated[1], "silu_glu")
    close(*gated, ratio=3e-6)


def pool_of(heads: HeadShape, other: tuple[int, int] | None = None) -> Pool:
    """Two layers, whose first has other heads."""
    own = CacheShape.of(heads)
    return Pool((CacheShape(*other) if other else own, own), 600, torch.float32, DEVICE)


def chunks_of(pool: Pool) -> list[Tensor]:
    """The memory of all pages."""
    return [*pool.whole.chunks, *pool.recent.chunks]


def cache_of(pool: Pool, positions: int) -> PagedCache:
    """A sequence with random rows."""
    cache = PagedCache(pool, positions)
    cache.reserve(positions)
    for page in (*cache.whole.pages, *cache.latest.pages):
        page.normal_()
    return cache


HEADS = {
    "norms": {"dim": 32, "q_norm": True, "k_norm": True},
    "bias": {"dim": 24, "bias": True, "parts": 2},
    "partial-rotation": {"dim": 40, "pairs": 8},
    "no-rotation": {"dim": 16, "pairs": 0},
    "positions-of-pairs": {"dim": 40, "pairs": 8, "grid": True},
    "keys-and-values-only": {"dim": 32, "queries": 0, "k_norm": True},
    "queries-only": {"dim": 32, "cached": False, "q_norm": True},
    "norms-of-rows": {"dim": 24, "q_norm": True, "k_norm": True, "whole": True, "bias": True, "parts": 3},
    "values-with-a-norm": {"dim": 16, "q_norm": True, "k_norm": True, "v_norm": True},
    "keys-are-values": {"dim": 40, "k_norm": True, "v_norm": True, "shared": True, "parts": 2},
}


@pytest.mark.parametrize("case", HEADS)
def test_heads_are_rotated_and_stored(case):
    how = {"dim": 32, "queries": 4, "cached": True, "bias": False, "parts": 1, "q_norm": False, "k_norm": False}
    how |= {"v_norm": False, "whole": False, "shared": False} | HEADS[case]
    dim, queries = how["dim"], how["queries"]
    pairs, pool = how.get("pairs", dim // 2), pool_of(HeadShape(4, 2, dim, dim, 1.0), (3, 8))
    cache = cache_of(pool, 300)
    rows = torch.zeros(6, FIELDS, dtype=torch.int32, device=DEVICE)
    rows[:, LINE], rows[:, POSITION] = cache.line, torch.tensor([3, 4, 5, 140, 141, 0])
    rows[:, PLACE] = torch.tensor([0, 127, 128, 260, 5, -1])
    width = (queries + (2 if how["shared"] else 4) * how["cached"]) * dim
    parts = Parts(randn(how["parts"], 16, width), randn(width) if how["bias"] else None)
    counts = {"q_norm": queries, "k_norm": 2, "v_norm": 1} if how["whole"] else {}
    norms = {
        name: Norm(randn(counts.get(name, 1) * dim), 1e-6) if how[name] else None
        for name in ("q_norm", "k_norm", "v_norm")
    }
    roots = {}
    if how["whole"]:
        for name, columns in (
            ("q_roots", parts.columns(0, queries * dim)),
            ("k_roots", parts.columns(queries * dim, 2 * dim)),
        ):
            measured = [torch.full((16,), NAN, device=DEVICE) for _ in range(2)]
            measure_rows(columns, 1e-6, measured[0][:6])
            naive_measure_rows(columns, 1e-6, measured[1][:6])
            close(*measured)
            roots[name] = measured[0]
    rotary, results = Rotary(randn(200, pairs), randn(200, pairs)), []
    grid = torch.randint(200, (6, pairs), dtype=torch.int32, device=DEVICE) if "grid" in how else None
    more = {**roots, "positions": grid}
    before = [chunk.clone() for chunk in chunks_of(pool)]
    for run in (store_heads, naive_store_heads):
        for chunk, old in zip(chunks_of(pool), before, strict=True):
            chunk.copy_(old)
        q = torch.zeros(16, queries, dim, device=DEVICE) if queries else None
        run(rows, Heads(parts, queries, how["cached"], dim, *norms.values(), rotary, q, pool, 1, how["shared"], **more))
        results.append([chunk.clone() for chunk in chunks_of(pool)] + ([q[:5]] if queries else []))
    for kernel, twin in zip(*results, strict=True):
        close(kernel, twin)


ATTENTION = {
    "chains": {},
    "window": {"window": 50},
    "cap": {"cap": 5.0},
    "sinks": {"sinks": True},
    "both-directions": {"causal": False},
    "tree": {"tree": True},
    "tree-with-a-window": {"tree": True, "window": 20},
    "a-window-and-first-places": {"window": 20, "lead": 3},
    "a-window-and-first-places-in-a-tree": {"tree": True, "window": 4, "lead": 130},
    "a-window-of-blocks": {"causal": False, "window": 20, "anchored": True},
    "a-window-of-blocks-in-a-tree": {"tree": True, "window": 4, "anchored": True},
    "odd-heads": {"heads": (6, 2, 24)},
    "wide-heads": {"heads": (4, 2, 300), "window": 90},
    "latents": {"heads": (5, 1, 40), "latent": 32},
    "latents-of-many-heads": {"heads": (20, 1, 72), "latent": 48},
    "latents-of-odd-widths": {"heads": (3, 1, 67), "latent": 50, "tree": True},
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_of_several_sequences(case):
    how = {"window": 0, "cap": 0.0, "sinks": False, "causal": True, "tree": False, "heads": (4, 2, 32)}
    how |= {"latent": 0, "anchored": False, "lead": 0} | ATTENTION[case]
    h, k, d = how["heads"]
    shape = HeadShape(h, k, d, d, d**-0.5, how["window"], how["cap"], latent=how["latent"], lead=how["lead"])
    width = shape.value_dim
    pool = pool_of(shape, (1, 16))
    parents = [-1, -1, 0, 2, 1] if how["tree"] else None
    sequences = [
        SequenceRows(cache_of(pool, 400), 0, 7, 253, parents),
        SequenceRows(cache_of(pool, 200), 7, 1, 0),
        SequenceRows(cache_of(pool, 200), 8, 20, 60),
    ]
    height, group = tile_of(shape, torch.float32)
    rows_of_tile = height // group
    tiles = [tile for s in sequences for tile in tiles_of(s, rows_of_tile)]
    layout = Layout(Size(32, 64, 4, -1, -1, how["tree"]), DEVICE)
    zeros = torch.zeros(28, dtype=torch.int64).numpy()
    layout.fill(Chunk(0, 28, sequences, None, None), zeros, zeros, tiles)
    layout.upload()
    sinks = randn(h) if how["sinks"] else None
    outs, q = [], randn(32, h, d)
    for run in (attend, naive_attend):
        empty = lambda *size: torch.full((4, 32, h, *size), NAN, device=DEVICE)
        sums = Sums(empty(width), empty(), empty())
        out = torch.full((32, h, width), NAN, device=DEVICE)
        run(
            q,
            layout.rows,
            layout.tiles,
            layout.paths,
            sums,
            Attention(shape, pool, 1, how["causal"], sinks, how["tree"], how["anchored"]),
            out,
        )
        outs.append(out)
    close(*outs, ratio=4e-6)
    assert outs[0][:28].isfinite().all()
    assert outs[0][28:].isnan().all()


@pytest.mark.parametrize(
    ("rows", "heads", "kept", "n", "k"), [(1, 3, 0, 50, 70), (20, 2, 8, 64, 24), (5, 20, 7, 130, 64)]
)
def test_products_with_a_matrix_of_every_head(rows, heads, kept, n, k):
    x, weights = randn(rows, heads, kept + k), randn(heads, n, k)
    outs = [torch.full((rows, heads, kept + n), NAN, device=DEVICE) for _ in range(2)]
    for run, out in zip((multiply_heads, naive_multiply_heads), outs, strict=True):
        run(x, weights, kept, out)

    close(*outs, ratio=4e-6)
    alone = torch.full_like(outs[0][:1], NAN)
    multiply_heads(x[:1], weights, kept, alone)
    assert torch.equal(alone, outs[0][:1])


@pytest.mark.parametrize("added", [True, False])
def test_convolutions_over_the_rows_of_a_text(added):
    """Rows of three texts, one of them alone, and rows that fill the step."""
    rows = torch.zeros(9, FIELDS, dtype=torch.int32, device=DEVICE)
    rows[:, LINE] = torch.tensor([1, 1, 1, 2, 3, 3, 3, 0, 0])
    rows[:, PLACE] = torch.tensor([7, 8, 9, 10, 4, 5, 6, -1, -1])
    x, kernel, base = randn(16, 24), randn(16, 3 * 4) if added else None, randn(3, 24)
    out = torch.full((16, 24), NAN, device=DEVICE)
    convolve_block(rows, x, kernel, base, out)

    for first, end in ((0, 3), (3, 4), (4, 7)):
        for row in range(first, end):
            taps = range(min(3, row - first + 1))
            factors = [base[t] + (kernel[row].view(3, 4)[t].repeat_interleave(6) if added else 0) for t in taps]
            close(out[row], sum(x[row - t] * factors[t] for t in taps), ratio=3e-6)


@pytest.mark.parametrize(("count", "used", "width"), [(7, 3, 2), (5000, 16, 1), (2048, 1, 3), (4, 4, 5)])
def test_columns_of_the_best_clusters(count, used, width):
    """Ties, numbers that are none, and rows with fewer finite scores than clusters that are wanted."""
    scores = torch.randn(5, count, device=DEVICE).mul(4).round()
    scores[1, ::2], scores[2], scores[3, 1:] = NAN, 1.0, float("-inf")
    values, out = randn(8, count * width), torch.full((5, count * width), NAN, device=DEVICE)
    best = BestClusters.empty(5, count, used, DEVICE)
    find_best_clusters(scores, best)
    mask_clusters(values, scores, best, out)

    first = scores.nan_to_num(float("-inf"), neginf=float("-inf")).argsort(stable=True, dim=1, descending=True)[
        :, :used
    ]
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, first, True).repeat_interleave(width, 1)
    assert torch.equal(out, values[:5].masked_fill(~chosen, float("-inf")))


def test_sums_relative_to_the_size_of_a_row():
    x, y, out = randn(8, 40), randn(8, 40), torch.full((8, 40), NAN, device=DEVICE)
    add_relative(x, y, out[:5])

    close(out[:5], x[:5] + x[:5].square().mean(1, keepdim=True).sqrt() * y[:5], ratio=3e-6)
    assert out[5:].isnan().all()


@pytest.mark.parametrize("other", [None, (1, 40), (5, 8), (1, 600, 1), (2, 40, 2, 60)])
def test_rows_of_a_kept_path_are_moved(other):
    pool = pool_of(HeadShape(4, 2, 24, 24, 1.0), other)
    cache = cache_of(pool, 300)
    twin = cache.copy()
    places = [126, 129, 130, 140, 258]
    cache.compact(125, places)
    twin.naive_compact(125, places)
    for layer in range(cache.layers):
        for kernel, expected in zip(cache.read(layer, 300), twin.read(layer, 300), strict=True):
            assert torch.equal(kernel, expected)


def test_pages_of_a_dropped_cache_are_used_again():
    pool = pool_of(HeadShape(4, 2, 16, 16, 1.0))
    first = cache_of(pool, 3 * PAGE)
    pages, line = [page.data_ptr() for page in first.whole.pages], first.line
    del first
    again = cache_of(pool, 3 * PAGE)
    assert again.line == line
    assert {page.data_ptr() for page in again.whole.pages} == set(pages)
    assert len(pool.whole.chunks) <= 2


def test_a_description_of_a_tree():
    """Places of a path are numbered as if it were a chain."""
    pool = pool_of(HeadShape(4, 2, 16, 16, 1.0))
    s = SequenceRows(cache_of(pool, 100), 0, 6, 10, [-1, -1, 0, 2])
    layout = Layout(Size(8, 16, 4, -1, -1, True), torch.device("cpu"))
    zeros = torch.zeros(6, dtype=torch.int64).numpy()
    layout.fill(Chunk(0, 6, [s], None, None), zeros, zeros, tiles_of(s, 32))
    layout.upload()
    assert layout.rows[:6, SEEN].tolist() == [10, 11, 12, 12, 13, 14]
    assert layout.rows[:6, PLACE].tolist() == [10, 11, 12, 13, 14, 15]
    assert layout.rows[:6, BASE].tolist() == [BEYOND, BEYOND, 12, 12, 12, 12]
    assert layout.rows[:6, LAST].tolist() == [15] * 6
    assert layout.rows[6:, PLACE].tolist() == [-1, -1]
    assert layout.paths[5, :3].tolist() == [0, 2, 3]
