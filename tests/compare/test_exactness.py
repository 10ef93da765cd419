"""``--exact``: says what is equal by construction, and whether the shape of steps explains a difference."""

from __future__ import annotations

import json

import attrs
import pytest
from spec_commands.prompts import Prompt
from spec_compare.figures.table import describe_difference
from spec_compare.measuring import difference, exactness, measure
from spec_compare.measuring.exactness import explain_differences, rows_at, statement, step_starts
from spec_compare.measuring.measure import Baseline, Contender, RequestSettings
from spec_compare.records.header import TargetFacts
from spec_compare.records.record import Steps

from spec_core import Run, Sampling
from spec_core.contract.batch import TargetOutput
from spec_core.testing import QuickTarget
from tests.compare.test_compare import compare, folder  # noqa: F401
from tests.support.toy_plugins import Liar, Repeat

PROMPTS = [Prompt("a", "f", [1, 2, 3]), Prompt("b", "f", [4, 5])]
TERMS = RequestSettings(24, Sampling())


class Rounding(QuickTarget):
    """Steps of at least ``rows`` rows round their logits coarsely: close scores become equal, and the lower id wins."""

    def __init__(self, rows: int = 3) -> None:
        super().__init__(seed=5)
        self.rows = rows

    def forward(self, batch, needs):
        output = super().forward(batch, needs)
        if batch.tokens.numel() < self.rows or len(batch.parts[0].pending) > 1:
            return output
        return TargetOutput(output.logits.round(), output.hidden, output.final)


def differences(target, *methods):
    """Explained differences of a contender, and its laps."""
    setup = Baseline("plain", target, TERMS, PROMPTS)
    contenders = [
        Contender("plain", lambda: Run(target, reuse=False), setup),
        Contender("other", lambda: Run(target, [("repeat", Repeat()), *methods], reuse=False), setup),
    ]
    laps = list(measure.measure_laps(contenders, 1))
    differing = difference.differences(laps, [], {"plain": setup})
    return explain_differences(differing, laps, {"plain": setup}), laps


def test_a_difference_of_numerics_flips_in_plain_decoding_of_the_same_shape():
    differing, _ = differences(Rounding())

    assert differing
    for d in differing:
        assert d.flips is True
        assert d.rows == 4 and len(d.best) == len(d.scores) == 2
        assert d.scores[0] - d.scores[1] == pytest.approx(d.gap)
        assert "flips there too: numerics" in describe_difference(d)


def test_a_difference_that_the_shape_does_not_explain_is_a_fault():
    """A rule that decides wrongly on a target with equal rows in every shape."""
    differing, _ = differences(QuickTarget(seed=5), ("liar", Liar()))

    assert {(d.prompt, d.position) for d in differing} == {("a", 4), ("b", 4)}
    assert all(d.flips is False and "is at fault" in describe_difference(d) for d in differing)


def test_without_the_flag_nothing_is_replayed(compare, monkeypatch):  # noqa: F811
    monkeypatch.setattr(exactness, "explain_differences", lambda *_: pytest.fail("replayed"))
    code, out, _ = compare("--method", "liar", "--json")
    (first, *_) = json.loads(out)["differences"]

    assert code == 1
    assert (first["flips"], first["rows"]) == (None, None)
    assert first["scores"][0] - first["scores"][1] == pytest.approx(first["gap"])


def test_the_command_explains_every_difference(compare):  # noqa: F811
    code, out, _ = compare("--method", "liar", "--exact")

    assert code == 1
    assert out.count("does not flip: the method, its rule or its rollback is at fault") == 3
    assert "toy:dense: exact by construction" in out


def facts(exact: str | None) -> TargetFacts:
    return TargetFacts("m", "m", "f", "cpu", "float32", 64, "v", exact, None, None, {}, [])


@pytest.mark.parametrize(
    ("exact", "expected"),
    [
        ("rows", "m: exact by construction: rows have equal bits alone, with drafts and in a batch,"),
        ("chains: no trees", "m: exact by construction: rows of text and of drafts that are chains have equal bits,"),
        ("no: bfloat16", "m: not exact by construction (no: bfloat16)"),
        (None, "m: not exact by construction (its target does not report it)"),
    ],
)
def test_what_is_known_beforehand_is_said(exact, expected):
    assert statement(facts(exact)).startswith(expected)


def test_rows_are_those_of_the_step_that_chose_the_token():
    """Steps at positions 1, 4 and 5, with two drafts, none, and three."""
    _, laps = differences(QuickTarget())
    steps = Steps([2, 0, 3], [2, 0, 3], [2, 0, 1], [3, 1, 2], [0.0] * 3, [2, 0, 2])
    record = attrs.evolve(laps[0].records[0], steps=steps)

    assert step_starts(record) == [(1, 2), (4, 0), (5, 3)]
    assert [rows_at(record, i) for i in (0, 1, 3, 4, 5, 6)] == [3, 3, 3, 1, 4, 4]
