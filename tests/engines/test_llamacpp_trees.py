"""Drafts that branch on the target of llama.cpp: rows, the path that is kept, and what is refused."""

from __future__ import annotations

import pytest
from spec_zoo import path

from spec_core import Draft, Run, UsageError, load
from spec_core.errors import TargetError
from spec_core.testing import TargetConformance
from spec_core.testing.conformance.drive import (
    Row,
    evaluate_along,
    expect_close,
    feed_tokens,
    forward,
    host,
    keep_paths,
)
from spec_core.toolkit import open_sequence
from tests.support.small_models import tiny_gguf, tiny_hybrid

try:
    from spec_engines.llamacpp import ENGINE, check_installed  # noqa: F401, ENGINE is for conftest.py

    check_installed()
except UsageError as missing:
    pytest.skip(missing.reason, allow_module_level=True)

from spec_engines.llamacpp import loading

ROUNDING = 5e-3
"""In a forward of many rows flash attention computes in float16."""
TEXT = [1, 2, 3, 4]
TREE = Draft([5, 6, 7, 8, 9, 10], parents=[-1, -1, 0, 1, 1, 3])
"""A tree with the paths 5 7, 6 8 10 and 6 9."""
WIDE = Draft([11, 12, 13, 14, 15], parents=[-1, -1, -1, -1, 2])


def tiny():
    file = f"llamacpp-trees:{tiny_gguf(context=128, kind='F32')}"
    return load(file, threads=1, device="cpu", cache_dtype="float32")


class TestTrees(TargetConformance):
    """The whole kit, checks of trees included."""

    tolerance = batch_tolerance = ROUNDING

    def make(self):
        return tiny()


def check_last_row(target, seq, tokens, draft=None):
    """One forward, whose last row must be that of plain decoding along the text and the last path; the step."""
    step, output = forward(target, [Row(seq, tokens, draft)])
    drafted = [] if draft is None else [draft.ids[i] for i in draft.ancestry(len(draft) - 1)]
    text = [*seq.tokens, *drafted]
    expect_close(host(output.logits[-1]), evaluate_along(target, text).logits[-1], ROUNDING, f"the last row of {text}")
    return step


@pytest.mark.parametrize("kept", [(), (0,), (0, 2), (1,), (1, 3), (1, 3, 5), (1, 4)])
def test_rows_behind_a_kept_path_are_those_of_its_text(kept):
    """Behind it: a tree with more paths, one of them kept, and a chain."""
    target = tiny()
    seq = open_sequence(target)
    keep_paths(target, check_last_row(target, seq, TEXT, TREE), [kept])
    keep_paths(target, check_last_row(target, seq, [20], WIDE), [(2, 4)])
    keep_paths(target, check_last_row(target, seq, [21], Draft([22, 23])), [(0,)])
    check_last_row(target, seq, [24])


def test_a_tree_without_a_verdict_leaves_no_rows():
    """As when its sequence failed in the step."""
    target = tiny()
    seq = open_sequence(target)
    forward(target, [Row(seq, TEXT, TREE)])
    seq.evaluated = 2
    output = feed_tokens(target, seq, [9, 9])

    expect_close(
        host(output.logits[-1]),
        evaluate_along(target, [1, 2, 9, 9]).logits[-1],
        ROUNDING,
        "the row after a dropped tree",
    )


def test_tokens_of_a_tree_fit_behind_a_full_context():
    """They share positions, and have cells of their own."""
    target = tiny()
    seq = open_sequence(target)
    text = [(7 * i * i + 31 * i + 5) % 300 for i in range(125)]
    tree = Draft(range(63), parents=[-1] * 21 + [*range(21)] * 2)

    assert forward(target, [Row(seq, text, tree)])[1].logits.shape == (64, 300)


def test_methods_draft_trees_and_paths_beside_the_first_are_kept():
    trees, run = [], Run(load(f"llamacpp-trees:{path('pico')}", threads=1), ["recycling"], max_sequences=1)
    run.observe(lambda step: trees.extend(part for part in step.parts if part.draft and part.draft.parents))
    for prompt in ("def add(a, b):\n    return", "one two three one two three one two three one"):
        for seed in range(3):
            assert run.generate(prompt, max_tokens=64, ignore_eos=True, temperature=0.8, seed=seed).result

    assert any(len(part.draft) > part.draft.depth for part in trees)
    assert any(part.verdict.path and part.verdict.path[-1] >= len(part.verdict.path) for part in trees)


def test_a_run_with_trees_reports_that_no_rows_are_exact():
    assert Run(tiny(), ["recycling"]).stats.report()["exact"] == f"no: {loading.TREES}"


def test_a_draft_with_more_leaves_than_sequences_is_refused(monkeypatch):
    monkeypatch.setattr("spec_engines.llamacpp.paths.LEAVES", 2)
    target = tiny()
    with pytest.raises(TargetError, match=r"a draft has 3 leaves, llama\.cpp was prepared for 2"):
        forward(target, [Row(open_sequence(target), TEXT, TREE)])


def test_trees_on_a_model_with_recurrent_layers_are_refused():
    with pytest.raises(UsageError, match="a model with recurrent layers takes chains only"):
        load(f"llamacpp-trees:{tiny_hybrid(context=128)}", threads=1, device="cpu")
