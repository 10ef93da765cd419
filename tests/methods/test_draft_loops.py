"""A draft of K tokens in one call equals that of K single steps: tokens, probabilities and their rows."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path

import attrs
import numpy as np
import pytest
import spec_kernels.native
import torch
from spec_kernels.native.executor import Native

import spec_core.sampling.native
from spec_core import Request, Run, Sampling, Target, load
from spec_core.sampling import native
from spec_core.toolkit import TokenDrafter
from tests.methods import heads
from tests.support import choices
from tests.support.small_models import tiny_gguf, tiny_hybrid

VOCAB = 300
DRAFTERS = ("draft-model", "mtp", "eagle3", "eagle3-reduced")
RULES = (None, "rejection", "k-seq", "point-mass")
"""Shared noise; private noise with rows of probabilities; private noise without."""
with_both = pytest.mark.skipif(
    native.module is None or spec_kernels.native.module() is None, reason="needs both extensions"
)


@functools.cache
def target_of(drafter: str, kernels: str) -> Target:
    """Several runs share one."""
    file = tiny_hybrid(context=128) if drafter == "mtp" else tiny_gguf(0, layers=4)
    return load(file, dtype="float32", device="cpu", kernels=kernels)


def started(drafter: str, p_min: float, rule: str | None, kernels: str = "native") -> Run:
    target = target_of(drafter, kernels)
    if drafter == "mtp":
        return Run(target, [("mtp", {"p_min": p_min})], rule=rule)
    if drafter == "draft-model":
        return Run(target, [("draft-model", {"file": str(tiny_gguf(1)), "p_min": p_min})], rule=rule)
    name, settings = heads.method("eagle3", "dense", 120 if drafter.endswith("reduced") else None)
    return Run(target, [(name, {**settings, "p_min": p_min})], rule=rule)


def drafted(run: Run, request: Request) -> tuple[list, list[int]]:
    """(tokens, chances, proposal, rows they were drawn from) of every draft, and the text."""
    found = []
    drafts = lambda step: [p.draft for p in step.parts if p.draft is not None]
    run.observe(lambda step: found.extend((d.ids, d.confidence, d.proposal, d.probs) for d in drafts(step)))
    return found, run.generate(request).result.tokens


def equal(a: list, b: list) -> bool:
    rows = lambda x, y: x is y is None or (x is not None and y is not None and torch.equal(x, y))
    return len(a) == len(b) and all(x[:3] == y[:3] and rows(x[3], y[3]) for x, y in zip(a, b, strict=True))


def settings(seed: int, count: int) -> list[tuple[Sampling, float]]:
    """Random ways to sample, with bias, penalties and cuts, and thresholds beside them."""
    rng = np.random.default_rng(seed)
    some = [choices.sampling(rng, VOCAB) for _ in range(count)]
    warm = [s if s.temperature > 0 else attrs.evolve(s, temperature=0.8) for s in some]
    return [(s, float(rng.choice([0.0, 0.3, 0.6]))) for s in warm]


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """One for every call of the native loop with a chooser."""
    made: list[int] = []
    draw = Native.draw
    monkeypatch.setattr(Native, "draw", lambda *given, **named: made.append(0) or draw(*given, **named))
    return made


@with_both
@pytest.mark.parametrize("form", ["native choice", "written choice"])
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_sampled_draft_in_one_call_is_the_one_of_single_steps(drafter, rule, form, calls, monkeypatch):
    requests = [
        (Request([5, 9, 11, 2], max_tokens=12, ignore_eos=True, seed=i, sampling=sampling), p_min)
        for i, (sampling, p_min) in enumerate(settings(DRAFTERS.index(drafter), 6))
    ]
    once = [drafted(started(drafter, p_min, rule), request) for request, p_min in requests]
    assert len(calls) > len(requests)
    if form == "native choice":
        monkeypatch.setattr(TokenDrafter, "chooser", lambda *given: None)
    else:
        monkeypatch.setattr(native, "module", None)
    calls.clear()
    again = [drafted(started(drafter, p_min, rule), request) for request, p_min in requests]

    assert not calls
    for (mine, text), (other, same_text), (request, p_min) in zip(once, again, requests, strict=True):
        assert text == same_text
        assert equal(mine, other), (request.sampling, p_min)
    assert any(len(ids) > 1 for drafts, _ in once for ids, *_ in drafts)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_reference_executor_draws_token_by_token(drafter, calls):
    """It has no native loop for sampled drafts; they are drafted step by step."""
    request = Request([5, 9, 11, 2], max_tokens=8, ignore_eos=True, seed=1, sampling=Sampling(temperature=0.8))
    drafts, text = drafted(started(drafter, 0.0, None, "reference"), request)

    assert drafts and len(text) == 8 and not calls


def test_both_sides_read_one_header():
    sides = [
        Path(spec_core.sampling.native.__file__).with_name("chooser.h"),
        Path(spec_kernels.native.__file__).with_name("binding") / "chooser.h",
    ]
    assert sides[0].read_bytes() == sides[1].read_bytes()


# what the native loop is not to believe


def chooser(vocabulary: int = VOCAB, length: int = 5, tokens: list[int] | None = None):
    sampling = Sampling(temperature=0.8, repetition_penalty=1.1)
    return native.module.chooser(sampling._terms, (1, 0, 0), 0, (1, 0), tokens or [5, 9], 2, vocabulary, length)


def drawn(made, length: int = 5, ids=None):
    """A draft of eagle3's layer by a chooser."""
    run = started("eagle3-reduced", 0.0, None)
    layer = next(c.plugin for c in run.plugins if c.name == "eagle3").layer
    layer.ids = layer.ids if ids is None else ids(layer.ids).contiguous()
    memory = layer.memory()
    memory.take(0, [5, 9], layer.features([torch.randn(2, 32) for _ in range(3)]), {})
    memory.room(16)
    return layer.draw(memory.pairs(), length, 0.0, 0.9, [], made, True)


@with_both
def test_rows_are_kept_for_every_token():
    ids, chances, rows = drawn(chooser())
    assert (len(ids), len(chances), rows.shape) == (5, 5, (5, 120))
    assert len({row.numpy().tobytes() for row in rows}) == 5


@with_both
@pytest.mark.parametrize(
    "made, length, ids, said",
    [
        (lambda: chooser(length=4), 5, None, "longer than its chooser"),
        (lambda: chooser(vocabulary=100), 5, None, "more logits than"),
        (lambda: chooser(vocabulary=200), 5, None, "stands for no token"),
        (chooser, 5, lambda ids: ids[:100], "stands for one token"),
        (chooser, 5, lambda ids: ids - VOCAB, "stands for no token"),
        (chooser, 5, lambda ids: ids + VOCAB, "stands for no token"),
        (chooser, 300, None, "1 to 256"),
        (lambda: native.module.chooser, 5, None, "PyCapsule"),
        (lambda: datetime.datetime_CAPI, 5, None, "PyCapsule"),
    ],
    ids=["room", "row", "ids", "few", "negative", "beyond", "long", "function", "capsule"],
)
def test_a_chooser_that_does_not_fit_is_refused(made, length, ids, said):
    with pytest.raises(ValueError, match=said):
        drawn(made(), length, ids)


@with_both
@pytest.mark.parametrize("bad", [{"vocabulary": 0}, {"vocabulary": -1}, {"length": 0}, {"length": -2}], ids=str)
def test_a_chooser_of_nothing_is_refused(bad):
    with pytest.raises(ValueError, match="at least one token"):
        chooser(**bad)


@with_both
def test_a_history_that_is_none_is_refused():
    with pytest.raises(TypeError):
        chooser(tokens=["a"])
