"""Hidden states are captured for plugins that need them, and released with their chunk."""

from __future__ import annotations

import gc

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from spec_core import Run, load
from tests.methods.heads import METHODS, method
from tests.support.small_models import tiny_gguf, tiny_hybrid

PROMPT = [(7 * i) % 299 for i in range(70)]
kernels_of_both = pytest.mark.parametrize("kernels", ["native", "reference"])


def step_through(run: Run, look=lambda step: None):
    """One request in chunks of 16, every step seen."""
    run.observe(look)
    run.submit(PROMPT, max_tokens=12, ignore_eos=True)
    while run.busy:
        run.step()
        yield


@kernels_of_both
@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ([], set()),
        (["ngram"], set()),
        (["eagle3"], {"hidden.1", "hidden.2"}),
        (["dflash"], {"hidden.1", "hidden.2"}),
        (["ngram", "eagle3", "dflash"], {"hidden.1", "hidden.2"}),
    ],
    ids=["none", "ngram", "eagle3", "dflash", "all"],  # a set's own order is another in every process
)
def test_only_what_was_asked_for_is_captured(methods, expected, kernels, monkeypatch):
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels=kernels)
    seen, run = [], target.executor.run
    monkeypatch.setattr(target.executor, "run", lambda batch: (seen.append(set(batch.taps)), run(batch))[1])
    methods_here = [method(m, "dense") if m in METHODS else m for m in methods]
    for _ in step_through(Run(target, methods_here, prefill_chunk=16)):
        pass

    assert len(seen) > 5
    assert {frozenset(taps) for taps in seen} == {frozenset({"logits", *expected})}


@pytest.fixture
def young():
    """Objects from before the test are excluded from garbage collection, to save time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.repeats(8)
@pytest.mark.slow
@pytest.mark.usefixtures("young")
@kernels_of_both
@pytest.mark.parametrize("name", [*METHODS, "mtp"])
def test_no_hidden_state_outlives_its_chunk(name, kernels):
    """What a method makes of them is its own; the memory of the states themselves is free before the next step."""
    path = tiny_hybrid() if name == "mtp" else tiny_gguf(0, layers=4)
    target = load(path, dtype="float32", device="cpu", kernels=kernels)
    held: list[StorageWeakRef] = []

    def look(step):
        states = [*step.output.hidden.values(), *([] if step.output.final is None else [step.output.final])]
        held.extend(StorageWeakRef(state.untyped_storage()) for state in states)

    run, chunks = Run(target, ["mtp" if name == "mtp" else method(name, "dense")], prefill_chunk=16), 0
    for _ in step_through(run, look):
        gc.collect()
        assert held and all(ref.expired() for ref in held)
        held.clear()
        chunks += 1
    assert chunks > 5


def test_a_kept_state_would_be_seen():
    """The check above finds one that is held."""
    target, kept, held = load(tiny_gguf(0, layers=4)), [], []

    def look(step):
        kept.extend(step.output.hidden.values())
        held.extend(StorageWeakRef(state.untyped_storage()) for state in step.output.hidden.values())

    next(step_through(Run(target, [method("eagle3", "dense")], prefill_chunk=16), look))
    assert held and not any(ref.expired() for ref in held)
    kept.clear()
    torch.zeros(1)
    gc.collect()
    assert all(ref.expired() for ref in held)
