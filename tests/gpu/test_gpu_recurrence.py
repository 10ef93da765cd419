"""Kernels of recurrent layers against their naive twins, places of states, and what a step says of them."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu import states as chunks_of_states
from spec_kernels.gpu.delta import DeltaInputs, prepare_rows, replay_rows
from spec_kernels.gpu.recurrence import StateLayout, StateSize, cut_lineage, uncut_rows
from spec_kernels.gpu.short_conv import convolve_gated
from spec_kernels.gpu.states import StateChunks
from spec_kernels.gpu.windows import Links
from spec_kernels.model.recurrence import Lines
from spec_kernels.model.shapes import ConvShape, DeltaShape, RecurrentShape

from tests.support.gpu_twins import naive_convolve_gated, naive_prepare_rows, naive_replay_rows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPE = DeltaShape(key_heads=2, value_heads=4, key_dim=12, value_dim=10, kernel=4, tiled=True)
BY_CHANNEL = DeltaShape(key_heads=2, value_heads=4, key_dim=12, value_dim=10, kernel=4, by_channel=True)
NAN = float("nan")


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size, device=DEVICE)


def close(kernel: torch.Tensor, twin: torch.Tensor) -> None:
    assert torch.equal(kernel.isnan(), twin.isnan())
    assert (kernel - twin).nan_to_num().norm() <= 2e-6 * twin.nan_to_num().norm()


def random_states(layers: int, count: int, shape: RecurrentShape = SHAPE) -> StateChunks:
    """Places with random states, each in a chunk of its own."""
    pool = StateChunks(shape, layers, DEVICE)
    for place in pool.take(count):
        for memory in pool.state(place):
            memory.normal_()
    return pool


@pytest.fixture(autouse=True)
def one_chunk_a_place(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(chunks_of_states, "CHUNK_BYTES", 0)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(("shape", "scan"), [(SHAPE, False), (SHAPE, True), (BY_CHANNEL, False)])
def test_rows_are_prepared(recorded, shape, scan):
    """A chain, a tree and rows that only fill the step, over windows of two places; rows are strided."""
    pool, decays = random_states(3, 2, shape), shape.decays
    parents, sources, count = [-1, 0, 1, 2, 3, -1, 5, 5, 6, -1], [1] * 5 + [0] * 5, 10
    offsets = [int(pool.offsets[place]) for place in sources]
    links = Links(*(torch.tensor(m, device=DEVICE) for m in (parents, offsets, [-1] * count)))
    products = randn(16, SHAPE.channels + 5 + decays)
    x, beta = products[:, 1 : 1 + SHAPE.channels], products[:, -4 - decays : -decays]
    alpha, results = products[:, -decays:] * 9, []
    conv, rate, dt, bias = randn(4, SHAPE.channels), -randn(decays).exp(), randn(decays), randn(SHAPE.channels)
    for prepare in (prepare_rows, naive_prepare_rows):
        empty = lambda *shape: torch.full((16, *shape), NAN, device=DEVICE)
        outs = empty(2, 12), empty(4, 10), empty(4), empty(shape.record_bytes // 4)
        inputs = DeltaInputs(conv, rate, dt, 1e-5, pool, 2, *outs, recorded, bias if scan else None, 2.0)
        prepare(x, beta, alpha, links, inputs)
        results.append(outs)
    for kernel, twin in zip(*results, strict=True):
        close(kernel, twin)


@pytest.mark.parametrize("shape", [ConvShape(40, 3), ConvShape(700, 2), ConvShape(16, 6)])
def test_gated_convolutions(shape):
    """As above; the gate is a part of other rows, and results are the last columns of wider ones."""
    pool = random_states(3, 2, shape)
    parents, sources = [-1, 0, 1, 2, 3, -1, 5, 5, 6, -1], [1] * 5 + [0] * 5
    offsets = [int(pool.offsets[place]) for place in sources]
    links = Links(*(torch.tensor(m, device=DEVICE) for m in (parents, offsets, [-1] * 10)))
    u, c, conv = randn(16, shape.channels), randn(16, shape.channels + 3)[:, 3:], randn(shape.kernel, shape.channels)
    out = torch.full((16, shape.channels + 5), NAN, device=DEVICE)
    convolve_gated(u, c, conv, pool.of_layer(2)[1], links, out[:, 5:])

    close(out[:10, 5:], naive_convolve_gated(u, c, conv, pool, 2, links))
    assert out[:, :5].isnan().all()
    assert out[10:].isnan().all()


@pytest.mark.parametrize("shape", [SHAPE, BY_CHANNEL, ConvShape(600, 3)])
@pytest.mark.parametrize("path", [[3], [0, 4], [0, 1, 2, 3, 4], []])
def test_rows_are_replayed(path, shape):
    """Paths shorter and longer than a window, into the second of three places."""
    record, path = randn(3, 5, shape.record_bytes // 4), torch.tensor(path, dtype=torch.int64, device=DEVICE)
    pools = []
    for replay in (replay_rows, naive_replay_rows):
        torch.manual_seed(1)
        pools.append(random_states(3, 3, shape))
        replay(record, pools[-1], 1, path)
    for place in range(3):
        for kernel, twin in zip(*(pool.copy(place) for pool in pools), strict=True):
            close(kernel, twin)


def test_places_stay_where_they_are():
    pool = StateChunks(SHAPE, 2, DEVICE)
    (first,) = pool.take()
    matrices, windows = pool.state(first)
    matrices.fill_(3.0)
    places = pool.take(4)
    pool.put(places[2], pool.copy(first))
    pool.clear(first)

    assert pool.state(first)[0].data_ptr() == matrices.data_ptr()
    assert not matrices.any()
    assert (pool.state(places[2])[0] == 3).all()
    assert matrices.shape == (2, 4, 12, 10)
    assert windows.shape == (2, 3, SHAPE.channels)
    addresses = [pool.memory.data_ptr() + 4 * int(offset) for offset in pool.offsets[:-1]]
    assert addresses == [pool.state(place)[0].data_ptr() for place in range(pool.places)]
    assert pool.offsets[-1] == -1
    assert (pool.offsets[:-1] % 4 == 0).all()


def test_places_are_taken_once_by_many_threads():
    pool, taken = StateChunks(SHAPE, 1, DEVICE), []
    threads = [Thread(target=lambda: taken.extend(pool.take(5))) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert len(set(taken)) == 20


def lineage():
    """A prompt of 100 rows from position 30 with a chain of 3 drafts, and a step with a tree."""
    lines = Lines()
    lines.add(4, 30, 100, [-1, 0, 1], [], 3)
    lines.add(6, 9, 1, [-1, -1, 0], [7, 8], 3)
    return lines.lineage()


def test_a_chunk_cuts_neither_pieces_nor_drafts():
    """The run has rows 34 to 97; row 99 is the last pending one."""
    whole = lineage()
    assert whole.chunks == [(34, 64)]
    cuts = {(0, 20): 20, (0, 40): 34, (0, 60): 50, (50, 48): 48, (98, 4): 2, (100, 2): 0, (103, 3): 1, (104, 2): 0}
    assert {span: uncut_rows(whole, *span) for span in cuts} == cuts


def test_a_cut_sequence_goes_on_from_its_place():
    whole = lineage()
    assert cut_lineage(whole, 0, 107) is whole
    first, middle, last = (cut_lineage(whole, *span) for span in ((0, 50), (50, 100), (100, 107)))
    assert (first.chunks, middle.chunks, last.chunks) == ([(34, 16)], [(0, 48)], [])
    assert (first.keep[-1], middle.keep[-1]) == (4, 4)
    assert set(first.keep[:-1]) == {-1}
    assert (middle.parents[:2], last.parents) == ([-1, 0], [-1, 0, 1, -1, 3, 3, 4])
    assert (middle.begins, last.begins) == ([0], [0, 3])
    assert last.keep == [-1, -1, -1, 6, 7, 8, -1]


def test_a_step_as_integers():
    """Pieces of runs are the first of the table; places are offsets."""
    layout = StateLayout(110, StateSize(2, 4, 1, True), DEVICE)
    layout.fill(lineage(), [100, 101, 102, 104], np.array([*range(0, 900, 100), -1]))
    layout.device.copy_(layout.host)
    before, runs, after = layout.stages

    assert runs.spans.tolist() == [[0, 4], [0, 0]]
    assert runs.table[:4, :2].tolist() == [[34, 16], [50, 16], [66, 16], [82, 16]]
    assert before.spans.tolist() == [[4, 38], [38, 42]]
    assert after.spans.tolist() == [[42, 47], [0, 0]]
    assert before.table[4].tolist() == [0, 1, 400, -1, -1, -1]
    assert before.table[38:42, 2:4].tolist() == [[600, 600], [-1, 700], [600, 800], [700, -1]]
    assert layout.kept.tolist() == [[99, 103], [103, 107]]
    assert layout.links.keep[[98, 99, 100, 103, 104, 107]].tolist() == [-1, 400, -1, 600, 700, -1]
    assert layout.recorded[:4].tolist() == [100, 101, 102, 104]
