"""``spec replay``: the recording controller chooses the same again; what was not recorded is never assumed."""

from __future__ import annotations

import json

import pytest
from spec_cli.main import run_command
from spec_compare.records.reading import read_results
from spec_compare.replay import policies
from spec_compare.replay.cut import cut_draft
from spec_compare.replay.recorded import RecordedPart, RecordedText, steps_of
from spec_compare.replay.results import replay_results

from spec_core import Compat, Draft, Limit, UsageError, hookimpl

COMMON = ["-m", "zoo:pico", "--threads", "1", "--no-bounds", "--trace", "--family", "edit"]
TEXT = RecordedText(0, 4, [9] * 40, "a")


def run_comparison(out, *more: str):
    """A comparison with traces."""
    assert run_command(["compare", *COMMON, *more, "--out", str(out)]) == 0
    return read_results(out)


def rows(comparison, controls=(), lengths=(), chances=(), contenders=()):
    return replay_results(comparison, controls, lengths, chances, contenders)


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """Recorded with a controller whose choices depend on times, two texts at once, in two runs."""
    more = ["--method", "ngram+draft-model", "--control", "auto", "--batch", "2", "--repeats", "2"]
    return run_comparison(tmp_path_factory.mktemp("controlled") / "out", *more, "--limit", "3", "-n", "40")


@pytest.fixture(scope="module")
def free(tmp_path_factory):
    """Recorded without a controller, drafts of at most four tokens."""
    more = ["--method", "ngram", "-o", "draft_max=4", "--limit", "2", "-n", "48"]
    return run_comparison(tmp_path_factory.mktemp("free") / "out", *more)


def test_the_controller_of_the_recording_makes_the_same_choices(comparison_folder):
    (row,) = rows(comparison_folder)

    assert row.policy == "auto" and row.choices > 40
    assert (row.same, row.censored) == (row.choices, 0)


def test_its_choices_follow_the_recorded_times(comparison_folder):
    """With other times it chooses otherwise: the replay reads them."""
    changed = read_results(comparison_folder.folder)
    for lap in changed.laps:
        for record in lap.records:
            trace = record.trace
            trace.seconds[:] = [{**s, "verify": s["verify"] / 50} for s in trace.seconds]
    (row,) = rows(changed)

    assert row.same < row.choices


def test_the_recorded_drafts_are_replayed_as_they_were(free):
    (row,) = rows(free)
    draft_statistics = [lap.records[0].draft_statistics for lap in free.laps if lap.contender == "ngram"]

    assert (row.policy, row.same, row.censored) == ("as recorded", row.choices, 0)
    assert row.tokens_per_step == sum(t.emitted for t in draft_statistics) / sum(t.steps for t in draft_statistics)
    assert row.drafted_per_step == sum(t.drafted for t in draft_statistics) / sum(t.steps for t in draft_statistics)


def test_a_shorter_draft_keeps_what_was_accepted_of_it(free):
    """Counted here from the columns of the records alone."""
    _, row = rows(free, lengths=(2,))
    steps = [lap.records[0].steps for lap in free.laps if lap.contender == "ngram"]
    drafted = [n for s in steps for n in s.drafted]
    kept = sum(min(2, n) for s in steps for n in s.accepted)
    emitted = sum(min(e, min(2, n) + 1) for s in steps for n, e in zip(s.accepted, s.emitted, strict=True))

    assert row.censored == 0 and max(drafted) == 4 and kept
    assert row.drafted_per_step == pytest.approx(sum(min(2, n) for n in drafted) / len(drafted))
    assert row.tokens_per_step == pytest.approx(emitted / len(drafted))


def test_longer_drafts_than_recorded_are_censored(free):
    whole, row = rows(free, lengths=(9,))
    steps = [lap.records[0] for lap in free.laps if lap.contender == "ngram"]
    used = sum(n == limit for r in steps for n, limit in zip(r.steps.depth, r.trace.budget, strict=True) if limit)

    assert row.censored == 0, "the budget of the recording is the limit of every choice"
    assert used and row.tokens_per_step == whole.tokens_per_step


def test_no_draft_at_all_is_plain_decoding(free):
    _, row = rows(free, lengths=(0,))

    assert (row.drafted_per_step, row.tokens_per_step) == (0, 1)


def test_a_limited_recording_says_nothing_about_longer_drafts(comparison_folder):
    _, row = rows(comparison_folder, lengths=(16,))

    assert row.censored > 0


# one draft


def part(draft, sources, pieces, uncut=(), limits=None, budget=8):
    return RecordedPart(TEXT, 10, 1, 5, budget, draft, sources, pieces, list(uncut), len(uncut) + 1, limits)


def test_a_tree_keeps_what_is_above_the_limit():
    tree = Draft([1, 2, 3, 4], parents=[-1, -1, 0, 2])
    left = cut_draft(part(tree, ["m"] * 4, [4], uncut=(0, 2, 3)), {"m": Limit(2)}, ["m"])

    assert (left.draft.ids, left.draft.parents) == ((1, 2, 3), (-1, -1, 0))
    assert left.path == (0, 2) and not left.censored


def test_the_limit_of_a_method_counts_from_where_it_went_on():
    """Two tokens of one method, then three of another behind them."""
    recorded_part = part(Draft([1, 2, 3, 4, 5]), ["a", "a", "b", "b", "b"], [2, 3], uncut=(0, 1, 2, 3))
    left = cut_draft(recorded_part, {"a": Limit(), "b": Limit(1)}, ["a", "b"])

    assert [(p.source, p.draft.ids, p.first, p.leaf) for p in left.pieces] == [("a", (1, 2), 0, -1), ("b", (3,), 2, 1)]
    assert left.path == (0, 1, 2) and not left.censored


def test_a_price_ends_a_draft_where_the_path_is_too_unlikely():
    recorded_part = part(Draft([1, 2, 3], confidence=[0.9, 0.5, 0.9]), ["a"] * 3, [3], uncut=(0, 1, 2))

    assert cut_draft(recorded_part, {"a": Limit(price=0.5)}, ["a"]).draft.ids == (1,)
    assert cut_draft(recorded_part, {"a": Limit(price=0.45)}, ["a"]).draft.ids == (1, 2)
    assert cut_draft(recorded_part, {"a": Limit(), "b": Limit(price=0.95)}, ["a"]).draft.ids == (1, 2, 3)


@pytest.mark.parametrize(
    ("then", "now", "censored"),
    [
        ({"a": Limit(3)}, {"a": Limit(4)}, True),
        ({"a": Limit(4)}, {"a": Limit(8)}, False),
        ({"a": Limit(3)}, {"a": Limit(3)}, False),
        ({"a": Limit(3)}, None, True),
        ({"a": Limit(3)}, {"a": Limit(2)}, False),
        ({"a": Limit(3), "b": Limit()}, {"b": Limit()}, True),
    ],
    ids=["more", "it ended by itself", "as much", "no limit now", "less", "another one is asked"],
)
def test_what_the_record_does_not_say_is_censored(then, now, censored):
    """Three tokens by one method; another one could have drafted instead."""
    recorded_part = part(Draft([1, 2, 3]), ["a"] * 3, [3], uncut=(0, 1, 2), limits=then)

    assert cut_draft(recorded_part, now, ["a", "b"] if now and "b" in now else ["a"]).censored == censored


# what is refused


def test_results_without_traces_are_refused(tmp_path, capsys):
    command = ["compare", "-m", "zoo:pico", "--method", "ngram", "--limit", "1", "-n", "4", "--no-bounds"]
    assert run_command([*command, "--family", "edit", "--out", str(tmp_path / "out")]) == 0
    assert run_command(["replay", str(tmp_path / "out")]) == 2
    assert "has no traces" in capsys.readouterr().err


def test_unknown_names_are_refused(free, capsys):
    assert run_command(["replay", str(free.folder), "--contender", "gnram"]) == 2
    assert "no contender named 'gnram' drafts\n  there are: ngram" in capsys.readouterr().err
    assert run_command(["replay", str(free.folder), "--control", "ngram"]) == 2
    assert "ngram" in capsys.readouterr().err


class Reader:
    """A controller that reads committed rows."""

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl
    def draft(self, step):
        """Limits nothing."""

    @hookimpl
    def process(self, rows):
        """Reads them."""


def test_a_controller_that_reads_rows_is_refused(monkeypatch):
    monkeypatch.setattr(policies, "import_plugin", lambda entry: Reader)
    with pytest.raises(UsageError, match="auto implements process: rows and logits are not recorded"):
        policies.controller("auto")


@pytest.mark.parametrize(
    ("column", "value"),
    [("pieces", [7]), ("pieces", [-1]), ("sources", []), ("uncut", [3, 1]), ("uncut", [99]), ("parents", [5, 5])],
    ids=["pieces", "negative", "sources", "backwards", "beyond", "parents"],
)
def test_a_trace_that_contradicts_itself_is_refused(free, tmp_path, column, value):
    written = [json.loads(line) for line in (free.folder / "results.jsonl").read_text("utf-8").splitlines()]
    record = next(r for r in written if r.get("contender") == "ngram" and any(r["steps"]["drafted"]))
    at = next(i for i, n in enumerate(record["steps"]["drafted"]) if n)
    record["trace"][column][at] = value
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    comparison = read_results(tmp_path)
    with pytest.raises(UsageError, match="the trace of"):
        steps_of([lap for lap in comparison.laps if lap.contender == "ngram"])


def test_the_table_is_printed(free, capsys):
    assert run_command(["replay", str(free.folder), "--length", "1", "--min-chance", "0.5"]) == 0
    output = capsys.readouterr().out
    assert [line.split("  ")[0] for line in output.splitlines()[3:6]] == ["as recorded", "length 1", "min chance 0.5"]
    assert run_command(["replay", str(free.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["contender"] == "ngram"
