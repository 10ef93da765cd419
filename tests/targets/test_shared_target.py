"""One target under several runs: in threads at once, and one after the other; for long in tests/campaigns/soak.py."""

from __future__ import annotations

import gc
import os
import time
from threading import Event, Thread

import pytest
from spec_kernels import native
from spec_kernels.model import rotary
from spec_kernels.model.readers import ReadersLock
from spec_kernels.model.shapes import DeltaShape
from spec_kernels.model.states import StatePool
from spec_targets.tokenizer.base import Tokenizer

from spec_core import Run, load
from tests.support import shared
from tests.support.small_models import tiny_gguf, tiny_hybrid

EXECUTORS = [
    pytest.param("native", marks=pytest.mark.skipif(native.problem() is not None, reason="no native kernels here")),
    "reference",
]
SHAPE = DeltaShape(key_heads=1, value_heads=2, key_dim=4, value_dim=4, kernel=3)
SMALL = {"dense": ([], ["ngram"], ["suffix"], ["recycling"]), "hybrid": ([], ["ngram"], ["mtp"], ["mtp"])}


@pytest.fixture
def small(monkeypatch):
    """Random models in the place of the zoo's, with methods that need no head of theirs."""
    targets = {}

    def target(kind: str, kernels: str):
        if kind != "toy" and (kind, kernels) not in targets:
            path = tiny_gguf(0) if kind == "dense" else tiny_hybrid(0)
            targets[kind, kernels] = load(path, kernels=kernels, threads=1)
        return shared.ToyTarget() if kind == "toy" else targets[kind, kernels]

    monkeypatch.setattr(shared, "target", target)
    monkeypatch.setattr(shared, "METHODS", {**shared.METHODS, **SMALL})
    return target


@pytest.mark.parametrize("kernels", EXECUTORS)
@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_runs_in_four_threads_give_the_texts_of_a_single_run(kind, kernels, small):
    """They begin and end all the time, with another list of methods in every thread."""
    assert shared.differing(kind, kernels, seed=0, each=16 if kernels == "native" else 4, longest=12) == 0


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_runs_in_four_threads_on_random_models(kernels):
    """Architectures, sizes and types drawn: some recur, some choose experts."""
    seeds = range(6) if kernels == "native" else range(2)

    assert [shared.differing("random", kernels, seed, each=4, longest=8) for seed in seeds] == [0] * len(seeds)


def test_runs_in_four_threads_on_the_toy(small):
    assert shared.differing("toy", "", seed=0, each=6, longest=12) == 0


@pytest.mark.skipif(native.problem() is not None, reason="no native kernels here")
@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_trained_models_with_drafting_models_and_heads_in_four_threads(kind):
    """A draft model, EAGLE-3 and MTP, each with memory of its own."""
    assert shared.differing(kind, "native", seed=1, each=6, longest=16) == 0


@pytest.mark.parametrize("kernels", EXECUTORS)
@pytest.mark.parametrize("close", [True, False], ids=["closed", "dropped"])
def test_runs_one_after_the_other_take_the_same_places(kernels, close, small):
    """The places that one of them needs: 40 runs of a request would have left 40."""
    gc.disable()  # nothing has to be collected
    try:
        *_, places = shared.growth("hybrid", kernels, 40, close)
    finally:
        gc.enable()

    pool = small("hybrid", kernels).pool
    assert places == pool.places <= 2
    assert sorted(pool._free) == list(range(places))


@pytest.mark.parametrize("kernels", EXECUTORS)
def test_a_run_is_closed_while_another_steps(kernels, small):
    """Places that one gives back go to the other; neither text changes."""
    target = small("hybrid", kernels)
    prompts = [[1, 2, 3], [4, 5, 6, 7], [8, 9]]
    expected = [Run(target).generate(p, max_tokens=30, ignore_eos=True).result.tokens for p in prompts]
    stop, results = Event(), []

    def steady() -> None:
        while not stop.is_set():
            with Run(target, ["mtp"]) as run:
                results.append([g.result.tokens for g in run.generate(prompts, max_tokens=30, ignore_eos=True)])

    thread = Thread(target=steady)
    thread.start()
    try:
        for i in range(12):
            run = Run(target)
            run.submit(prompts[i % 3], max_tokens=20)
            run.step()
            run.close()
    finally:
        stop.set()
        thread.join()

    assert results and all(texts == expected for texts in results)


# the pool


def test_growth_waits_for_a_forward_and_loses_nothing_it_writes():
    """Values that a forward writes into its tensors are in the tensors that replace them."""
    pool = StatePool(SHAPE, layers=2)
    (own,) = pool.take()
    grower = Thread(target=pool.take, args=(5,))
    with pool.steady():
        matrices = pool.matrices
        grower.start()
        grower.join(0.05)
        assert grower.is_alive() and pool.matrices is matrices
        matrices[:, own] = 7.0
    grower.join()

    assert pool.places == 6
    assert bool((pool.matrices[:, own] == 7.0).all())


def test_places_are_taken_once_by_many_threads():
    pool, taken = StatePool(SHAPE, layers=1), []

    def take() -> None:
        for i in range(60):
            places = pool.take(1 + i % 3)
            taken.append(places)
            if i % 2:
                pool.give(taken.pop())  # perhaps another thread's

    threads = [Thread(target=take) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    held = [place for places in taken for place in places]
    assert sorted([*held, *pool._free]) == list(range(pool.places))


def test_a_pool_that_cannot_grow_keeps_what_it_has(monkeypatch):
    pool = StatePool(SHAPE, layers=1)
    pool.give(pool.take(2))

    def none_left(*_):
        raise MemoryError

    monkeypatch.setattr(pool, "_longer", none_left)
    with pytest.raises(MemoryError):
        pool.take(3)

    assert pool.places == 2 and sorted(pool.take(2)) == [0, 1]


def test_who_wants_to_write_goes_before_who_reads_later():
    lock, order = ReadersLock(), []

    def write() -> None:
        with lock.writing():
            order.append("writer")

    def read() -> None:
        with lock.reading():
            order.append("reader")

    writer, reader = Thread(target=write), Thread(target=read)
    with lock.reading():
        writer.start()
        while not lock._writers_waiting:
            time.sleep(0.001)
        reader.start()
        reader.join(0.05)
        assert order == []
    writer.join()
    reader.join()

    assert order == ["writer", "reader"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_child_of_a_fork_does_not_wait_for_threads_it_does_not_have():
    """Another thread reads while this one forks."""
    lock, reads, stop = ReadersLock(), Event(), Event()

    def read() -> None:
        with lock.reading():
            reads.set()
            stop.wait()

    thread = Thread(target=read)
    thread.start()
    reads.wait()
    child = os.fork()
    if not child:
        writer = Thread(target=lambda: lock.writing().__enter__(), daemon=True)
        writer.start()
        writer.join(10)
        os._exit(int(writer.is_alive()))
    stop.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# what else a target's threads share


@pytest.mark.skipif(native.problem() is not None, reason="no native kernels here")
def test_rotations_of_a_long_text_are_not_replaced_by_those_of_a_short_one(monkeypatch):
    """Both are missing, and the long one is made while the short one is."""
    executor = load(tiny_gguf(0), kernels="native", threads=1).executor
    real, others = rotary.cos_and_sin, []

    def cos_and_sin(table, positions, limit):
        if not others:
            others.append(Thread(target=executor._extend_rotary, args=(2000,)))
            others[0].start()
            others[0].join(0.1)
        return real(table, positions, limit)

    monkeypatch.setattr(rotary, "cos_and_sin", cos_and_sin)
    executor._extend_rotary(10)
    others[0].join()

    assert executor._rotary_positions >= 2000


def test_a_text_is_not_encoded_by_the_flag_of_another_thread(monkeypatch):
    """Whether control tokens written in a text are meant as such is a flag of the backend."""
    tokenizer = load(tiny_gguf(0), weights=False).tokenizer
    flags, others = [], []

    class Backend:
        encode_special_tokens = None

        def encode(self, text, add_special_tokens):
            if not others:
                others.append(Thread(target=tokenizer.encode, args=("b",), kwargs={"special": True}))
                others[0].start()
                others[0].join(0.1)
            flags.append((text, self.encode_special_tokens))
            return type("Encoding", (), {"ids": [1]})

    assert isinstance(tokenizer, Tokenizer)
    monkeypatch.setattr(tokenizer, "backend", Backend())  # other targets of the file share it
    tokenizer.encode("a")
    others[0].join()

    assert flags == [("a", True), ("b", False)]
