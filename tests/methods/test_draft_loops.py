"""A draft of K tokens in one call equals that of K single steps: tokens, probabilities and their rows."""

from __future__ import annotations

import datetime
import functools
import math
from pathlib import Path

import attrs
import numpy as np
import pytest
import spec_kernels.native
import torch
from spec_kernels.native.executor import Native

import spec_core.sampling.native
from spec_core import Request, Run, Sampling, Step, Target, load
from spec_core.sampling import native
from spec_core.toolkit import DraftLimits, TokenDrafter
from tests.methods import heads
from tests.support import choices, deep_mtp
from tests.support.pairs import every_pair
from tests.support.small_models import tiny_gguf, tiny_hybrid

VOCAB = 300
BLOCKS = ("dflash-reduced", "dspark", "dspark-bonus-reduced")
DRAFTERS = ("draft-model", "mtp", "mtp-of-three", "eagle3", "eagle3-reduced", *BLOCKS)
RULES = (None, "rejection", "k-seq", "point-mass")
"""Shared noise; private noise with rows of probabilities; private noise without rows."""
with_both = pytest.mark.skipif(
    native.module is None or spec_kernels.native.problem() is not None, reason="needs both extensions"
)


@functools.cache
def target_of(drafter: str, kernels: str) -> Target:
    """Several runs share one."""
    files = {"mtp": lambda: tiny_hybrid(context=128), "mtp-of-three": lambda: deep_mtp.hybrid(3)[0]}
    file = files.get(drafter, lambda: tiny_gguf(0, layers=4))()
    return load(file, dtype="float32", device="cpu", kernels=kernels)


def start(drafter: str, p_min: float, rule: str | None, kernels: str = "native", **tree: int) -> Run:
    """tree: settings of eagle3's trees. A ``reduced`` head drafts part of the vocabulary."""
    target = target_of(drafter, kernels)
    if drafter.startswith("mtp"):
        return Run(target, [("mtp", {"p_min": p_min})], rule=rule)
    if drafter == "draft-model":
        return Run(target, [("draft-model", {"file": str(tiny_gguf(1)), "p_min": p_min})], rule=rule)
    rows = 120 if drafter.endswith("reduced") else None
    name, settings = heads.method(drafter.removesuffix("-reduced"), "dense", rows)
    return Run(target, [(name, {**settings, "p_min": p_min, **tree})], rule=rule)


def drafts_of(run: Run, requests: list[Request]) -> tuple[dict[str, list], list[list[int]]]:
    """(tokens, parents, chances, proposal, rows they were drawn from) of every draft by request, and the texts."""
    drafts: dict[str, list] = {request.name: [] for request in requests}

    def look(step: Step) -> None:
        for part in step.parts:
            if (d := part.draft) is not None:
                drafts[part.seq.name].append((d.ids, d.parents, d.confidence, d.proposal, d.probs))

    run.observe(look)
    return drafts, [text.result.tokens for text in run.generate(requests)]


def equal(a: dict[str, list], b: dict[str, list]) -> bool:
    rows = lambda x, y: x is y is None or (x is not None and y is not None and torch.equal(x, y))
    same = lambda x, y: x[:4] == y[:4] and rows(x[4], y[4])
    return a.keys() == b.keys() and all(
        len(a[name]) == len(b[name]) and all(same(x, y) for x, y in zip(a[name], b[name], strict=True)) for name in a
    )


def settings(seed: int, count: int) -> list[tuple[Sampling, float]]:
    """Random ways to sample, with bias, penalties and cuts, and thresholds beside them."""
    rng = np.random.default_rng(seed)
    some = [choices.sampling(rng, VOCAB) for _ in range(count)]
    warm = [s if s.temperature > 0 else attrs.evolve(s, temperature=0.8) for s in some]
    return [(s, float(rng.choice([0.0, 0.3, 0.6]))) for s in warm]


def request(i: int, sampling: Sampling, **more) -> Request:
    return Request([5, 9, 11, 2 + i], max_tokens=12, ignore_eos=True, seed=i, sampling=sampling, name=f"{i}", **more)


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """Of every call of the native loop: how many drafts it made."""
    lengths: list[int] = []
    draft = Native.draft
    count = lambda limits: lengths.append(len(limits)) or limits
    monkeypatch.setattr(Native, "draft", lambda me, batch, limits, *a, **k: draft(me, batch, count(limits), *a, **k))
    return lengths


def in_python(monkeypatch, form: str) -> None:
    """Tokens of sampled drafts and of trees are chosen in Python from now on, by the native choice or by numpy."""
    if form == "native choice":
        monkeypatch.setattr(TokenDrafter, "chooser", lambda *args, **named: None)
    else:
        monkeypatch.setattr(native, "module", None)


FORMS = ["native choice", "written choice"]


@pytest.mark.repeats(8)
@with_both
@every_pair(drafter=DRAFTERS, rule=RULES, form=FORMS)
def test_a_sampled_draft_in_one_call_is_the_one_of_single_steps(drafter, rule, form, calls, monkeypatch):
    """Of one sequence, then of three that are drafted together."""
    drawn = settings(DRAFTERS.index(drafter), 6)
    cases = [([request(i, sampling)], p_min) for i, (sampling, p_min) in enumerate(drawn[:3])]
    cases.append(([request(i, sampling) for i, (sampling, _) in enumerate(drawn[3:])], 0.3))
    once = [drafts_of(start(drafter, p_min, rule), requests) for requests, p_min in cases]
    assert len(calls) > len(cases) and max(calls) == 3
    in_python(monkeypatch, form)
    calls.clear()
    again = [drafts_of(start(drafter, p_min, rule), requests) for requests, p_min in cases]

    assert not calls
    for (ours, texts), (other, same_texts), case in zip(once, again, cases, strict=True):
        assert texts == same_texts
        assert equal(ours, other), case
    assert any(len(ids) > 1 for drafts_by_name, _ in once for drafts in drafts_by_name.values() for ids, *_ in drafts)


TREES = [
    {"width": 3, "draft_max": 3, "nodes_max": 256},
    {"width": 2, "draft_max": 6, "nodes_max": 7},
    {"width": 16, "draft_max": 2, "nodes_max": 20},
]


@with_both
@every_pair(drafter=["eagle3", "eagle3-reduced"], tree=TREES, temperature=[0.0, 0.8], form=FORMS)
def test_a_tree_in_one_call_is_the_one_of_single_forwards(drafter, tree, temperature, form, calls, monkeypatch):
    """Tokens, parents and chances, to the bit, of three sequences together; a rule of its own noise ranks by chance."""
    rng = np.random.default_rng(tree["width"])
    cuts = [attrs.evolve(choices.sampling(rng, VOCAB), temperature=temperature) for _ in range(3)]
    requests = [request(i, sampling) for i, sampling in enumerate(cuts)]
    cases = [(p_min, rule) for p_min in (0.0, 0.02) for rule in (None, "point-mass")]
    once = [drafts_of(start(drafter, p_min, rule, **tree), requests) for p_min, rule in cases]
    assert max(calls) == 3
    in_python(monkeypatch, form)
    calls.clear()
    again = [drafts_of(start(drafter, p_min, rule, **tree), requests) for p_min, rule in cases]

    assert not calls
    for (ours, texts), (other, same_texts), case in zip(once, again, cases, strict=True):
        assert texts == same_texts
        assert equal(ours, other), case
    parents = [parents for drafts_by_name, _ in once for drafts in drafts_by_name.values() for _, parents, *_ in drafts]
    assert any(parents != list(range(-1, len(parents) - 1)) for parents in parents)


@pytest.mark.skipif(spec_kernels.native.problem() is not None, reason="needs the kernels' extension")
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_drafts_of_several_sequences_are_those_of_each_alone(drafter, calls):
    """They end after different numbers of tokens; every one goes on behind its own."""
    requests = [request(i, Sampling()) for i in range(5)]
    together, texts = drafts_of(start(drafter, 0.05, None), requests)
    assert max(calls) == 5
    alone = [drafts_of(start(drafter, 0.05, None), [one]) for one in requests]

    assert texts == [text for _, (text,) in alone]
    assert equal(together, {name: drafts for drafts_by_name, _ in alone for name, drafts in drafts_by_name.items()})
    assert len({len(ids) for drafts in together.values() for ids, *_ in drafts}) > 1


@with_both
def test_greedy_and_sampled_sequences_and_rows_that_a_rule_reads_are_drafted_in_one_step(calls):
    """Rows are kept for drawn drafts; the others branch."""
    both = [request(i, Sampling(temperature=0.8 * (i % 2))) for i in range(4)]
    by_name, _ = drafts_of(start("eagle3", 0.0, "rejection", width=3, draft_max=3), both)

    assert max(calls) == 2
    for i, drafts in enumerate(by_name.values()):
        assert drafts
        assert all((parents is None) == (rows is not None) == bool(i % 2) for _, parents, _, _, rows in drafts)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_reference_executor_draws_token_by_token(drafter, calls):
    """It has no native loop for sampled drafts; they are drafted step by step."""
    one = request(0, Sampling(temperature=0.8))
    by_name, (text,) = drafts_of(start(drafter, 0.0, None, "reference"), [one])

    assert by_name["0"] and len(text) == 12 and not calls


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_reference_drafts_greedy_chains_of_several_sequences_in_one_call(drafter, monkeypatch):
    requests = [request(i, Sampling()) for i in range(3)]
    by_name, texts = drafts_of(start(drafter, 0.05, None, "reference"), requests)
    monkeypatch.setattr(TokenDrafter, "limits", lambda *args: None)
    again, same_texts = drafts_of(start(drafter, 0.05, None, "reference"), requests)

    assert texts == same_texts
    assert [[d[0] for d in by_name[r.name]] for r in requests] == [[d[0] for d in again[r.name]] for r in requests]


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


def draw_draft(chooser, length: int = 5, ids=None, width: int = 1, keep: bool = True, trust: float = 0.9):
    """A draft of eagle3's layer by a chooser, with room for it in the cache."""
    run = start("eagle3-reduced", 0.0, None)
    layer = next(c.plugin for c in run.plugins if c.name == "eagle3").layer
    layer.ids = layer.ids if ids is None else ids(layer.ids).contiguous()
    memory = layer.memory()
    memory.take(0, [5, 9], layer.features([torch.randn(2, 32) for _ in range(3)]), {})
    memory.room(16)
    return layer.draft([memory.pairs()], [DraftLimits(length, length, width, 0.0, frozenset(), trust, chooser)], keep)


@with_both
def test_rows_are_kept_for_every_token():
    (tokens,) = draw_draft(chooser()).found
    assert (len(tokens.tokens), len(tokens.chances), tokens.rows.shape) == (5, 5, (5, 120))
    assert len({row.numpy().tobytes() for row in tokens.rows}) == 5


@with_both
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"width": 65}, "1 to 64 children"),
        ({"width": 0}, "1 to 64 children"),
        ({"width": 2, "chooser": None}, "needs a chooser"),
        ({"length": 100, "width": 60}, "no room"),
        ({"trust": 1.5}, "from 0 to 1"),
        ({"trust": math.nan}, "from 0 to 1"),
        ({"width": 2, "keep": True}, "chains only"),
    ],
    ids=str,
)
def test_a_tree_that_does_not_fit_is_refused(more, message):
    with pytest.raises(ValueError, match=message):
        draw_draft(**{"chooser": chooser(length=200), "keep": False, **more})


@with_both
@pytest.mark.parametrize(
    "make, length, ids, message",
    [
        (lambda: chooser(length=4), 5, None, "longer than its chooser"),
        (lambda: chooser(vocabulary=100), 5, None, "more logits than"),
        (lambda: chooser(vocabulary=200), 5, None, "outside the vocabulary"),
        (chooser, 5, lambda ids: ids[:100], "one token id per logit"),
        (chooser, 5, lambda ids: ids - VOCAB, "outside the vocabulary"),
        (chooser, 5, lambda ids: ids + VOCAB, "outside the vocabulary"),
        (chooser, 300, None, "1 to 256"),
        (lambda: native.module.chooser, 5, None, "PyCapsule"),
        (lambda: datetime.datetime_CAPI, 5, None, "PyCapsule"),
    ],
    ids=["room", "row", "ids", "few", "negative", "beyond", "long", "function", "capsule"],
)
def test_a_chooser_that_does_not_fit_is_refused(make, length, ids, message):
    with pytest.raises(ValueError, match=message):
        draw_draft(make(), length, ids)


@with_both
@pytest.mark.parametrize("bad", [{"vocabulary": 0}, {"vocabulary": -1}, {"length": 0}, {"length": -2}], ids=str)
def test_a_chooser_of_nothing_is_refused(bad):
    with pytest.raises(ValueError, match="at least one token"):
        chooser(**bad)


@with_both
def test_a_history_that_is_none_is_refused():
    with pytest.raises(TypeError):
        chooser(tokens=["a"])
