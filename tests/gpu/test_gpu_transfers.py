"""What a step asks of a device: one upload, no wait before its tokens, and memory that several threads may take.

The device is a double: kernels run in triton's interpreter, and its memory is known.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.choice.chooser import DeviceChoice
from spec_kernels.gpu.device import device_lock
from spec_kernels.gpu.executor import PREPARED_ROWS
from spec_kernels.gpu.pool import LINES, CacheShape, Pool
from spec_kernels.gpu.tiles import PAGE
from spec_kernels.model.batch import Choices, ForwardBatch, SequenceRows

from benchmarks.dense_shapes import TINY, dense_target
from spec_core import Sampling, load
from spec_core.sampling.draws import PlainRows
from spec_core.toolkit.tree import DraftLimits
from tests.gpu.test_gpu_hybrids import TOKENS, Model
from tests.support.small_models import tiny_hybrid

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here, and the device is real")


@pytest.fixture
def device():
    from tests.support.fake_device import FakeDevice

    with FakeDevice() as device:
        yield device


def batch(cache, rows: int, start: int = 100, parents=None, **fields) -> ForwardBatch:
    tokens = torch.from_numpy(np.arange(rows))
    positions = torch.from_numpy(np.arange(start, start + rows))
    return ForwardBatch(tokens, positions, [SequenceRows(cache, 0, rows, start, parents)], **fields)


@pytest.mark.parametrize("parents", [None, [-1, -1, 0, 1, 2]])
def test_a_step_is_one_upload_and_never_waits(device, parents):
    executor = dense_target(TINY, "cpu", torch.float32).executor
    cache = executor.cache(200)
    executor.run(batch(cache, 8, parents=parents))
    device.clear()
    executor.run(batch(cache, 8, parents=parents))

    assert device.waits == []
    assert device.uploads == 1
    assert len(device.launches) == 9 * TINY.layers + 3  # embedding, last norm, head


def test_a_step_in_blocks_has_as_many_launches(device):
    from spec_kernels.gpu.executor import Gpu

    from benchmarks.dense_shapes import RandomBlocks, dense_model

    source = RandomBlocks(TINY, {"": "Q8_0"}, "cpu")
    executor = Gpu(dense_model(TINY, source), source, torch.float32, torch.device("cpu"), 256)
    cache = executor.cache(120)
    executor.run(batch(cache, 2))
    device.clear()
    executor.run(batch(cache, 2))

    assert device.waits == []
    assert len(device.launches) == 9 * TINY.layers + 3


def test_chains_of_drafts_wait_once(device):
    """For their tokens. The second text continues a row in the middle of the batch."""
    executor = dense_target(TINY, "cpu", torch.float32).executor
    caches = [executor.cache(200) for _ in range(2)]
    rows = ForwardBatch(
        torch.from_numpy(np.arange(3)), torch.from_numpy(np.array([100, 101, 50])),
        [SequenceRows(caches[0], 0, 2, 100), SequenceRows(caches[1], 2, 1, 50)], logits=[1, 2], final=[1, 2],
    )  # fmt: skip
    limits = [DraftLimits(4, 4, 1, 0.0)] * 2
    executor.draft(rows, limits)
    device.clear()
    executor.draft(rows, limits)

    assert device.waits[0] == "cpu" and set(device.waits[1:]) <= {"tolist"}  # of the copy


@pytest.mark.parametrize("kind", [None, "states", "inputs"])
def test_a_step_of_a_hybrid_never_waits(device, kind):
    model = Model(load(tiny_hybrid(0, mtp=False, small=True), kernels="gpu", device="cpu", dtype="float32"))
    text = model.text()
    for _ in range(2):
        device.clear()
        _, trace = model.run((text, 0, TOKENS[:5], 3), kind=kind)

    assert device.waits == []
    assert device.uploads <= 2
    if kind == "inputs":
        device.clear()
        text.slot.replay(trace, [2, 3])
        assert device.waits == []


def test_longer_texts_and_moved_rows_do_not_wait(device):
    executor = dense_target(TINY, "cpu", torch.float32).executor
    cache = executor.cache(PAGE)
    executor.run(batch(cache, 4, 0))
    device.clear()
    cache.reserve(3 * PAGE)
    cache.compact(1, [2, 3])

    assert device.waits == []


def test_a_choice_waits_once(device):
    logits = torch.zeros(2, 300, device=torch.device("cpu"))
    logits[1, 7] = 1.0
    draws = SimpleNamespace(
        rows=np.array([0, 1]), temperatures=np.zeros(2), seeds=np.zeros(2, np.uint64),
        counters=np.zeros((2, 3), np.uint32), masked=np.zeros(0, np.int64), masks=np.zeros((0, 10), np.uint32),
        changed=np.zeros(0, np.int64), ids=np.zeros(0, np.int64), terms=np.zeros((0, 3)),
    )  # fmt: skip
    choose = DeviceChoice(torch.device("cpu"))
    device.clear()

    assert choose(logits, draws)[0].tolist() == [0, 7]
    assert device.waits[:1] == ["cpu"] and set(device.waits[1:]) <= {"numpy"}


def test_common_sizes_are_prepared_and_used_by_the_first_thread(monkeypatch):
    """A step after them makes no program; none writes to a page."""
    executor = dense_target(TINY, "cpu", torch.float32).executor
    page = executor.facilities.pool.memory.clone()
    executor.prepare()
    prepared = len(executor.buckets)
    text = PlainRows(0, Sampling(), (0, 0, 0), 0, (0,))
    assert torch.equal(executor.facilities.pool.memory, page)
    new_sizes = []
    monkeypatch.setattr(executor, "_create", lambda *size: new_sizes.append(size))
    cache = executor.cache(200)
    thread = threading.Thread(
        target=lambda: [executor.run(batch(cache, rows, choices=Choices([text]))) for rows in PREPARED_ROWS]
    )
    thread.start()
    thread.join()

    assert not new_sizes
    assert len(executor.buckets) == prepared >= len(PREPARED_ROWS)


def test_threads_that_take_the_last_pages_get_pages_of_their_own():
    """A pool grows between the count of its free pages and their use by another thread."""
    pool = Pool((CacheShape(1, 16),), PAGE * LINES, torch.float32, torch.device("cpu"))
    taken: list[int] = []
    failures: list[BaseException] = []

    def take() -> None:
        try:
            for _ in range(100):
                taken.extend(page.data_ptr() for page in pool.whole.take(3))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    assert len(set(taken)) == len(taken) == 1200


def test_executors_of_one_device_share_a_lock():
    assert device_lock(torch.device("cpu")) is device_lock(torch.device("cpu"))


def test_steps_by_columns_are_those_of_new_descriptions():
    """Texts of two lengths that grow across a piece, beside steps of other texts in the same bucket, and one whose
    positions are not its places.
    """
    rows = [1, 3]
    executors = []
    for _ in range(2):
        torch.manual_seed(0)
        executors.append(dense_target(TINY, "cpu", torch.float32).executor)
    plain, planned = executors
    texts = {executor: [executor.cache(600) for _ in range(3)] for executor in (plain, planned)}
    starts, seen = [125, 505], 0
    for step in range(5):
        order = [0, 1] if step != 3 else [2, 1]  # another text in between
        results = []
        for executor in (plain, planned):
            if executor is plain:
                executor._plans.clear()
            sequences, first = [], 0
            for place, text, count in zip(starts, order, rows, strict=True):
                sequences.append(SequenceRows(texts[executor][text], first, count, place))
                first += count
            positions = np.concatenate([np.arange(at, at + count) for at, count in zip(starts, rows, strict=True)])
            step_batch = ForwardBatch(torch.arange(4) + step, torch.from_numpy(positions - step), sequences)
            seen += bool(executor is planned and any(plan.described for plan in executor._plans.values()))
            results.append(executor.run(step_batch)["logits"].clone())
        assert torch.equal(*results), step
        starts = [at + count for at, count in zip(starts, rows, strict=True)]

    assert seen
