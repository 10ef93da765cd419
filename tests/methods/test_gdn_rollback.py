"""gdn-rollback and the hybrid target pass the kit; its memory is counted before it is taken."""

from __future__ import annotations

import pytest
import torch
from spec_rollback.gdn_rollback import GdnRollback, choose_strategy, memory

from spec_core import Draft, Needs, load
from spec_core.testing import RollbackConformance, TargetConformance
from spec_core.toolkit import RecurrentSizes
from tests.support.small_models import tiny_hybrid, tiny_kimi, tiny_lfm2
from tests.targets.drive import forward, part, sequence


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


of_kinds = pytest.mark.parametrize("path", [tiny_hybrid, tiny_kimi, tiny_lfm2], ids=["hybrid", "kimi-linear", "lfm2"])


@of_kinds
@pytest.mark.parametrize("strategy", ["snapshot", "replay", "checkpoint"])
class TestGdnRollback(RollbackConformance):
    @pytest.fixture(autouse=True)
    def choose_strategy(self, strategy, path):
        self.strategy, self.path = strategy, path

    def make(self):
        return GdnRollback(self.strategy)

    def target(self):
        return load(self.path(context=128), dtype="float32", device="cpu")

    def prompts(self):
        return [[1, 2, 3, 4, 1, 2, 3, 4, 1, 2], [7]]


@of_kinds
class TestHybridTarget(TargetConformance):
    @pytest.fixture(autouse=True)
    def choose_path(self, path):
        self.path = path

    def make(self):
        return load(self.path(context=128), dtype="float32", device="cpu")


NINE_B = RecurrentSizes(24, 4 * (32 * 128 * 128 + 3 * 8192), 4 * (8192 + 2048 + 4096 + 32))


@pytest.mark.parametrize("n", [3, 7, 63])
def test_records_take_a_few_hundredths_of_the_memory_of_snapshots(n):
    need = memory(NINE_B, n)
    records = need["replay"] - NINE_B.state_bytes
    assert records <= 0.04 * need["snapshot"]


def test_auto_falls_back_where_records_do_not_fit():
    need = memory(NINE_B, 16)
    assert choose_strategy(need, free=100 << 30) == "replay"
    assert choose_strategy(need, free=need["replay"]) == "checkpoint"


@pytest.mark.parametrize("kernels", ["native", "reference"])
@of_kinds
def test_what_a_forward_records_is_what_was_counted(path, kernels):
    """The formula for memory equals the size of the tensors that a forward keeps."""
    target = load(path(), kernels=kernels)
    sizes = target.info.recurrent
    seq = sequence(target, [1, 2, 3])
    draft = Draft([4, 5, 6, 7, 8])
    traced = forward(target, part(seq, 0, [1, 2, 3], draft), needs=Needs(trace="inputs")).trace
    assert traced.nbytes == 5 * sizes.layers * sizes.record_bytes
    before = target.pool.places
    forward(target, part(seq, 0, [1, 2, 3], draft), needs=Needs(trace="states"))
    place = target.pool.matrices[:, 0].nbytes + target.pool.windows[:, 0].nbytes
    assert (target.pool.places - before) * place == 5 * sizes.layers * sizes.state_bytes
