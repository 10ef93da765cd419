"""Acceptance lengths under their three names, and the histogram: against values by hand, and against each other."""

from __future__ import annotations

import pytest
from spec_compare.figures.acceptance import AcceptanceLengths, acceptance_histogram, acceptance_lengths, uncut_length
from spec_compare.figures.columns import COLUMNS
from spec_compare.records.aliases import vllm
from spec_compare.records.record import Record, Steps, statistics_of

from tests.compare.test_compare import compare, folder, results, summary  # noqa: F401


def record(accepted: list[int], drafted: list[int], emitted: list[int] | None = None) -> Record:
    """A text of these steps. emitted: one more than was accepted, if it is left out."""
    emitted = [a + 1 for a in accepted] if emitted is None else emitted
    steps = Steps(drafted, drafted, accepted, emitted, [0.1] * len(drafted), accepted)
    times = (0.1, 1.0, 1.1, 1.0)
    return Record("m", "p", "f", 0, 0, 5, [0] * (1 + sum(emitted)), "length", *times, steps, statistics_of(steps))


TWELVE_IN_THREE, TWO_IN_TWO = record([4, 4, 1], [4, 4, 4]), record([0, 0], [3, 0])


def test_the_three_lengths_of_the_example_of_the_page():
    """12 tokens in 3 steps and 2 in 2: the mean of 4 and 1, the mean by tokens, and 14 in 5."""
    lengths = acceptance_lengths([TWELVE_IN_THREE, TWO_IN_TWO])

    assert lengths == AcceptanceLengths(2.5, pytest.approx((12 * 4 + 2 * 1) / 14), 2.8)


def test_the_lengths_are_one_number_if_every_request_has_the_same():
    lengths = acceptance_lengths([TWELVE_IN_THREE] * 3)

    assert (lengths.per_request, lengths.token_weighted, lengths.pooled) == (4, pytest.approx(4), 4)


def test_texts_without_steps_have_no_length():
    assert acceptance_lengths([record([], [])]) == AcceptanceLengths(None, None, None)
    assert acceptance_histogram([record([], [])]) == []


def test_the_uncut_length_counts_what_was_accepted_after_the_end():
    """The text ends at the second of four accepted tokens: vLLM counts four, ours two."""
    ended = record([4, 2], [4, 4], [5, 2])
    ended.steps.verified[:] = [4, 4]

    assert ended.draft_statistics.report()["mean_acceptance_length"] == 1 + 6 / 2
    assert uncut_length([ended, record([], [])]) == 1 + 8 / 2


def test_the_uncut_length_of_older_files_and_of_texts_without_drafts_is_unknown():
    assert uncut_length([record([1], [2])]) is None
    assert uncut_length([record([0], [0])]) is None


def test_the_histogram_counts_drafts_and_has_a_place_for_every_length():
    """Longest draft 4: five places. The step without a draft is not counted."""
    assert acceptance_histogram([TWELVE_IN_THREE, TWO_IN_TWO]) == [1, 1, 0, 0, 2]
    assert acceptance_histogram([record([0, 0], [3, 2])]) == [2, 0, 0, 0]


def test_the_histogram_gives_the_mean_acceptance_length_back(compare, folder):  # noqa: F811
    row = summary(compare("--method", "repeat", "--out", "out", "--json"))["repeat", "all"]
    own = [r for r in results(folder) if r["contender"] == "repeat"]
    drafts, histogram = sum(r["vllm"]["num_spec_steps"] for r in own), row["acceptance_histogram"]

    assert len(histogram) == 1 + max(depth for r in own for depth in r["steps"]["depth"])
    assert sum(histogram) == drafts
    assert 1 + sum(n * count for n, count in enumerate(histogram)) / drafts == pytest.approx(
        row["mean_acceptance_length"]
    )
    assert row["acceptance_length"]["pooled"] == row["tokens_per_step"]


def test_the_histogram_of_one_text_is_that_of_vllm():
    assert acceptance_histogram([TWELVE_IN_THREE]) == vllm(TWELVE_IN_THREE)["acceptance_histogram"]


def test_the_wide_table_has_all_three(compare):  # noqa: F811
    code, out, _ = compare("--method", "repeat", "--wide")

    assert code == 0 and "acceptance length" in out and "acceptance length" in COLUMNS
