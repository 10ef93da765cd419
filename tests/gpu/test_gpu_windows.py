"""Layers with a window on GPU kernels give pages back; what holds for the other executors holds for them."""

from __future__ import annotations

import gc

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_kernels.gpu.pool import PageGroup
from spec_kernels.model.batch import ForwardBatch, SequenceRows, numbers
from spec_kernels.model.kept_rows import Horizon
from torch import Tensor

from tests.targets import test_kept_rows as kept_rows
from tests.targets.test_kept_rows import one_thread

__all__ = ["one_thread"]
SHARED = [
    kept_rows.test_a_text_goes_on_a_little_before_its_end_with_equal_bits,
    kept_rows.test_a_text_that_cannot_go_on_starts_again_and_never_reads_what_is_gone,
    kept_rows.test_an_executor_refuses_rows_that_see_what_is_gone,
    kept_rows.test_keys_that_are_gone_are_an_error_and_others_are_read,
]


LONG = [
    kept_rows.test_a_copy_goes_on_where_its_source_can,
    kept_rows.test_drafts_longer_than_the_window_are_taken_back,
]
TESTS = [*SHARED, *(pytest.param(test, marks=pytest.mark.release) for test in LONG)]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__.removeprefix("test_"))
def test_as_on_other_executors(test):
    test("gpu")


@pytest.mark.parametrize(
    "family", ["gemma3", *(pytest.param(f, marks=pytest.mark.release) for f in ("gpt-oss", "mistral"))]
)
def test_layers_with_a_window_keep_it_and_no_more(family):
    kept_rows.test_layers_with_a_window_keep_it_and_no_more(family, "gpu")


@pytest.mark.parametrize("start", [pytest.param(201, marks=pytest.mark.release), 185])
def test_another_text_goes_on_at_the_end_of_the_prompt(start):
    kept_rows.test_another_text_goes_on_at_the_end_of_the_prompt(start, "gpu")


def test_the_plan_is_what_a_long_text_takes(monkeypatch, tmp_path):
    kept_rows.test_the_plan_is_what_a_long_text_takes(monkeypatch, tmp_path, "gpu")


def test_a_cache_that_does_not_fit_is_refused():
    """One of another target, and one with too little room; memory of others is neither read nor written."""
    target, other = (kept_rows.make_target("gpu") for _ in range(2))
    run = lambda cache, start: target.executor.run(
        ForwardBatch(numbers([5]), numbers([start]), [SequenceRows(cache, 0, 1, start)])
    )
    with pytest.raises(ValueError, match="of another target"):
        run(other.executor.cache(300), 0)
    with pytest.raises(ValueError, match="rows up to 300, its cache has room for 192"):
        run(target.executor.cache(300), 299)


def test_pages_are_free_once_their_rows_are_given_back():
    """Of layers with a window alone; the pages of a closed text are free too, those of its prompt's end included."""
    target = kept_rows.make_target("gpu", rewind=4)
    pool = target.executor.facilities.pool
    before = len(pool.recent.free)
    seq, _ = kept_rows.evaluate(target, kept_rows.TEXT, prompt=200)
    cache = seq.slot.state.cache
    used = len(cache.latest) + len(cache.marked.memory)

    assert cache.first >= 256 and len(cache.whole) == 4
    assert len(cache.latest) <= 2 and sum(map(len, pool.recent.chunks)) - len(pool.recent.free) == used
    target.close(seq)
    del cache
    gc.collect()
    assert len(pool.recent.free) == max(before, sum(map(len, pool.recent.chunks)))


def test_a_cache_stays_as_it_is_when_memory_is_exhausted(monkeypatch):
    """No row is lost, and no room is said to be there that is not."""
    cache = kept_rows.make_target("gpu").executor.cache(64)
    cache.grow(640)
    pages = list(cache.latest.pages)

    def take(group: PageGroup, count: int) -> list[Tensor]:
        if count:
            raise torch.OutOfMemoryError("exhausted")
        return []

    with monkeypatch.context() as patch:
        patch.setattr(PageGroup, "take", take)
        with pytest.raises(torch.OutOfMemoryError):
            cache.reserve(200, Horizon(190))
        assert (cache.first, cache.end, len(cache.latest)) == (0, 64, 1)
        assert cache.latest.pages[0] is pages[0]
    cache.reserve(200, Horizon(190))
    assert (cache.first, cache.end, len(cache.latest)) == (128, 320, 2)
