"""The contender that knows the text: all drafts are accepted, and it is compared like any other."""

from __future__ import annotations

import json

import pytest

from tests.compare.test_compare import N, compare, folder, results, summary  # noqa: F401


def test_every_draft_of_an_oracle_is_accepted(compare):  # noqa: F811
    code, out, _ = compare("--method", "repeat", "--oracle", "1", "--oracle", "4", "--json")
    rows = summary((code, out, ""))

    assert code == 0
    for length in (1, 4):
        row = rows[f"oracle {length}", "all"]
        assert row["draft_acceptance"] == 1 and row["identical"] == row["prompts"]
        assert row["speedup"] is not None
    assert rows["oracle 1", "all"]["tokens_per_step"] == pytest.approx((N - 1) / 7)


def test_an_oracle_drafts_its_length_even_if_the_run_allows_less(compare, folder):  # noqa: F811
    compare("--oracle", "6", "-o", "draft_max=2", "--out", "out")
    lengths = {d for r in results(folder) if r["contender"] == "oracle 6" for d in r["steps"]["drafted"]}

    assert max(lengths) == 6


@pytest.mark.parametrize("more", [["--temperature", "0.9"], ["--batch", "3"]], ids=["sampled", "batch"])
def test_an_oracle_knows_sampled_texts_and_batches(compare, more):  # noqa: F811
    code, out, _ = compare("--oracle", "3", *more, "--json")

    assert code == 0
    assert summary((code, out, ""))["oracle 3", "all"]["draft_acceptance"] == 1


def test_an_oracle_follows_a_conversation(compare, folder):  # noqa: F811
    """Each turn has a prompt of its own."""
    code, out, err = compare("--oracle", "3", "--sweep", "temperature=0,0.5", "--json")
    rows = json.loads(out)["rows"]

    assert code == 0, err
    assert {row["contender"] for row in rows if row["contender"].startswith("oracle")} >= {"oracle 3"}
