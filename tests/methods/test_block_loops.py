"""Chains of block drafters in one native call: against the same chains token by token, and what it refuses."""

from __future__ import annotations

from contextlib import nullcontext
from unittest import mock

import pytest
import spec_kernels.native
import torch
from spec_kernels.model.drafts import sigmoid
from spec_kernels.native.executor import Native
from spec_methods.block_drafters.sequential import Independent, sequential_part
from spec_methods.block_drafters.trees import BlockTree

from spec_core import Request, Run, Sampling, Step, load
from spec_core.sampling import native
from spec_core.toolkit import DraftLimits, TokenDrafter
from tests.methods.heads import method, spark_file, tiny
from tests.support.small_models import tiny_gguf

both = pytest.mark.skipif(
    native.module is None or spec_kernels.native.problem() is not None, reason="needs both extensions"
)
HEADS = [("dflash", 120), ("dspark", None), ("dspark", 120), ("dspark-bonus", None)]


def greedy_drafts(name: str, rows: int | None, kernels: str, whole: bool) -> list[tuple[list[int], list[float]]]:
    """Tokens and chances of the drafts of three requests together. whole: made in one call."""
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels=kernels)
    kind, settings = method(name, "dense", rows)
    drafts: list[tuple[list[int], list[float]]] = []

    def keep(step: Step) -> None:
        drafts.extend((part.draft.ids, part.draft.confidence) for part in step.parts if part.draft is not None)

    with nullcontext() if whole else mock.patch.object(TokenDrafter, "limits", lambda *_: None):
        run = Run(target, [(kind, {**settings, "p_min": 0.1})])
        run.observe(keep)
        assert all(g.result for g in run.generate([Request([i + 1, 4, 9], max_tokens=10) for i in range(3)]))
    return drafts


@both
@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize(("name", "rows"), HEADS)
def test_a_greedy_chain_in_one_call_is_the_one_of_single_tokens(name, rows, kernels):
    """Chances of a confidence head to the bit, those of a row of logits but for rounding."""
    with mock.patch.object(Independent, "follow", side_effect=AssertionError):
        once = greedy_drafts(name, rows, kernels, whole=True)
    again = greedy_drafts(name, rows, kernels, whole=False)

    assert [tokens for tokens, _ in once] == [tokens for tokens, _ in again]
    assert len({len(tokens) for tokens, _ in once}) > 1
    for (_, chances), (_, others) in zip(once, again, strict=True):
        assert chances == (others if name.startswith("dspark") else pytest.approx(others, abs=1e-6))


def test_a_sigmoid_of_any_score_is_a_chance():
    scores = [-torch.inf, -3e38, -700.0, -1.0, 0.0, 40.0, 3e38, torch.inf]
    chances = [sigmoid(float(score)) for score in scores]

    assert chances == sorted(chances)
    assert chances[0] == chances[1] == sigmoid(float("nan")) == 0.0
    assert (chances[4], chances[-1]) == (0.5, 1.0)
    assert chances[3] == pytest.approx(torch.sigmoid(torch.tensor(-1.0)).item())


def draft(change, scores: float = 0.0, depth: int = 3, width: int = 1):
    """A chain of a DSpark block of three rows. change: of the arguments of C, after the nine of a forward."""
    file, trunk = load(spark_file("dense"), weights=False), tiny("dense").executor
    part = sequential_part(file, trunk)
    states = torch.full((3, file.head.width), scores)
    blocks = [(5, torch.randn(3, file.head.draft_vocab, generator=torch.Generator().manual_seed(0)), states)]
    chooser = native.module.chooser(None, (1, 0, 0), 0, (1, 0), [5], 1, 300, 8) if width > 1 else None
    call = part.executor.program.draft
    program = mock.Mock(draft=lambda *args: call(*args[:9], *change(list(args[9:]))))
    with mock.patch.object(part.executor, "program", program):
        return part.draft(blocks, [DraftLimits(depth, depth, width, 0.0, frozenset(), 1.0, chooser)], False)


def replace(at: int, value):
    return lambda arguments: [value(old) if i == at else old for i, old in enumerate(arguments)]


READ, SURE, LOGITS, STATE = 6, 7, 1, 2
"""Places of what a chain reads, of the tap of its chances, of the tap of its logits, of the state that is fed back."""


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace(READ, lambda rows: None), "fed its own state"),
        (replace(STATE, lambda tap: 0), "fed its own state"),
        (replace(READ, lambda rows: ()), "rows of every input for each sequence"),
        (replace(READ, lambda rows: (rows[0][:1],)), "rows of every input for each sequence"),
        (replace(READ, lambda rows: (((0, *rows[0][0][1:]), rows[0][1]),)), "rows of every input for each sequence"),
        (replace(READ, lambda rows: (((rows[0][0][0], 299, 3), rows[0][1]),)), "rows of every input for each sequence"),
        (replace(READ, lambda rows: (((*rows[0][0][:2], 2), rows[0][1]),)), "longer than the rows it reads"),
        (replace(READ, lambda rows: (((*rows[0][0][:2], -1), rows[0][1]),)), "longer than the rows it reads"),
        (replace(SURE, lambda tap: 9), "no such tap"),
        (replace(LOGITS, lambda tap: 9), "one token id per logit"),
        (lambda arguments: arguments[:6], "17 arguments"),
    ],
)
def test_rows_and_taps_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        draft(change)


@both
def test_a_chain_that_is_longer_than_its_block_is_refused():
    with pytest.raises(ValueError, match="longer than the rows it reads"):
        draft(lambda arguments: arguments, depth=4)


@both
def test_a_tree_takes_no_chances_of_a_head():
    with pytest.raises(ValueError, match="chances of a tree"):
        draft(lambda arguments: arguments, width=2)


@both
def test_a_score_that_is_no_number_has_no_chance():
    [chain] = draft(lambda arguments: arguments, scores=float("nan"))

    assert chain.chances == [0.0] * len(chain.chances)
    assert len(chain.tokens) == 3


@both
def test_a_run_drafts_in_one_call_unless_rows_are_watched():
    calls = mock.Mock(side_effect=Native.draft, autospec=True)
    kind, settings = method("dspark", "dense", None)
    with mock.patch.object(Native, "draft", calls):
        run = Run(tiny("dense"), [(kind, settings)])
        plugin = next(c.plugin for c in run.plugins if c.name == kind)
        plugin.watch = mock.Mock()
        assert run.generate(Request([3, 1, 4], max_tokens=6)).result.tokens
    assert plugin.watch.called and not calls.called


TREES = [
    ("dflash-tree", 120),
    ("dspark-tree", None),
    ("dspark-tree", 120),
    ("dflash2-tree", 120),
    ("dspine-tree", None),
]


def tree_drafts(name: str, rows: int | None, whole: bool, sampling: Sampling) -> list[tuple]:
    """Tokens, parents and chances of the trees of three requests together. whole: made in one call."""
    target = load(tiny_gguf(0, layers=4), dtype="float32", device="cpu", kernels="native")
    kind, settings = method(name, "dense", rows)
    drafts: list[tuple] = []

    def keep(step: Step) -> None:
        drafts.extend((p.draft.ids, p.draft.parents, p.draft.confidence) for p in step.parts if p.draft is not None)

    with nullcontext() if whole else mock.patch.object(BlockTree, "whole", lambda *_: None):
        run = Run(target, [(kind, {**settings, "p_min": 0.001, "width": 4, "nodes_max": 14})])
        run.observe(keep)
        asked = [Request([i + 1, 4, 9], max_tokens=10, sampling=sampling, seed=i) for i in range(3)]
        assert all(g.result for g in run.generate(asked))
    return drafts


@both
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8}, {"temperature": 0.7, "repetition_penalty": 1.3}])
@pytest.mark.parametrize(("name", "rows"), TREES)
def test_a_tree_in_one_call_is_the_one_of_single_nodes(name, rows, sampling):
    """Chances but for rounding; no row is made in Python."""
    with mock.patch.object(Independent, "follow", side_effect=AssertionError):
        once = tree_drafts(name, rows, True, Sampling(**{"temperature": 0.0, **sampling}))
    again = tree_drafts(name, rows, False, Sampling(**{"temperature": 0.0, **sampling}))

    assert len(once) == len(again) and any(len(set(parents)) < len(parents) for _, parents, _ in once)
    for (tokens, parents, chances), (others, above, expected) in zip(once, again, strict=True):
        assert (tokens, parents) == (others, above)
        assert chances == pytest.approx(expected, abs=1e-5)
