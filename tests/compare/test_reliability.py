"""The curve of confidence over acceptance, from traces."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from spec_cli.main import run_command
from spec_compare.report.reliability import BINS, LAST, count_bins, curve, decided_tokens


def record(confidence, parents, path):
    trace = SimpleNamespace(confidence=[confidence, None], parents=[parents, None], uncut=[path, []])
    return SimpleNamespace(trace=trace)


def test_tokens_behind_a_rejected_one_are_not_tested():
    """Of a chain with two accepted tokens the third was tested, and the fourth was not."""
    chain = record([0.9, 0.8, 0.75, 0.6], None, [0, 1])

    assert [*decided_tokens(chain)] == [(1, 0.9, True), (2, 0.8, True), (3, 0.75, False)]


def test_siblings_of_an_accepted_token_were_tested():
    tree = record([0.6, 0.3, 0.5, 0.4], [-1, -1, 0, 1], [1])

    assert [*decided_tokens(tree)] == [(1, 0.6, False), (1, 0.3, True), (2, 0.4, False)]


def test_bins_have_the_mean_chance_and_the_share_accepted():
    records = [record([0.92, 1.0], None, path) for path in ([0, 1], [0], [])]
    bins = count_bins(records)

    assert {key: (one.tests, one.accepted) for key, one in bins.items()} == {(1, 9): (3, 2), (2, BINS - 1): (2, 1)}
    assert curve(bins, 1) == ([pytest.approx(0.92)], [pytest.approx(2 / 3)])
    assert curve(bins, 2) == ([pytest.approx(1.0)], [pytest.approx(0.5)])
    assert curve(bins, 3) == ([], [])


def test_late_positions_share_a_curve():
    bins = count_bins([record([0.5] * 6, None, [0, 1, 2, 3, 4])])

    assert [curve(bins, position)[1] for position in (1, 2, 3)] == [[1.0]] * 3
    assert curve(bins, LAST) == ([0.5], [pytest.approx(2 / 3)])


def test_a_report_with_traces_of_a_method_with_chances_has_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    words = [
        "compare",
        "-m",
        "zoo:pico",
        "--method",
        "draft-model",
        "--no-bounds",
        "--limit",
        "1",
        "-n",
        "24",
        "--trace",
    ]
    report = tmp_path / "report.html"

    assert (
        run_command([*words, "--trace", "--family", "edit", "--out", str(tmp_path / "out"), "--report", str(report)])
        == 0
    )
    page = report.read_text("utf-8")
    assert 'id="reliability"' in page
    assert all(f"position {title}" in page for title in ("1", "2", "3", "4 and later"))
