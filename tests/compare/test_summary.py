"""The arithmetic of a comparison, on records made by hand."""

from __future__ import annotations

import attrs
import pytest
from spec_commands import common
from spec_commands.prompts import Prompt
from spec_commands.tables import Cells, lay_out
from spec_compare.figures.acceptance import AcceptanceLengths
from spec_compare.figures.columns import COLUMNS, FEW, by_position, informative_columns, title
from spec_compare.figures.difference import first_difference
from spec_compare.figures.summary import rows
from spec_compare.figures.table import cells_of, show_rows
from spec_compare.figures.titles import names
from spec_compare.measuring.measure import Lap, Record, Steps, batches, rotate_names

from spec_core.commands import split_methods
from spec_core.toolkit.tally import DraftStatistics


def lap(
    contender: str, prompt: str, seconds: float, tokens: list[int], repeat: int = 0, family: str = "f", cpu: float = 0.0
) -> Lap:
    """Decoding takes ``seconds``, the first token one second. cpu: processor time of decoding."""
    times = (1, seconds, 1 + seconds, cpu)
    record = Record(contender, prompt, family, repeat, 0, 5, tokens, "length", *times, Steps(), DraftStatistics())
    return Lap(contender, family, repeat, 1 + seconds, 1 + cpu, {}, {}, {}, [record])


TEN = list(range(11))


def pair(prompt: str, plain: float, fast: float, **more) -> list[Lap]:
    return [lap("plain", prompt, plain, TEN, **more), lap("fast", prompt, fast, TEN, **more)]


def row(laps: list[Lap], name: str = "fast", family: str = "all", labels: dict[str, str] | None = None):
    return next(r for r in rows(laps, labels or {}) if (r.contender, r.family) == (name, family))


def test_a_rate_counts_tokens_after_the_first():
    assert row([lap("plain", "a", 5, TEN)], "plain").rate == 2


def test_speedup_is_the_ratio_of_rates_not_the_mean_of_ratios():
    """Prompts of 8 and 2 seconds take 2 and 2: ten seconds against four."""
    fast = row(pair("a", 8, 2) + pair("b", 2, 2))

    assert fast.speedup == pytest.approx(2.5)
    assert fast.middle == pytest.approx(2.5), "median of 4 and 1"
    assert (fast.low, fast.high) == (None, None), "two prompts are too few for an interval"


def test_an_interval_needs_five_prompts():
    """Speedups of 1 to 4 on five prompts; of four of them there is no interval."""
    laps = [one for i, name in enumerate("abcde") for one in pair(name, 4, 4 / (1 + 0.75 * i))]
    fast = row(laps)

    assert fast.low is not None and fast.high is not None and 1 < fast.low < fast.speedup < fast.high < 4
    assert row([one for one in laps if one.records[0].prompt != "e"]).low is None


def test_prefill_is_counted_apart():
    assert row(pair("a", 8, 2)).whole == pytest.approx(9 / 3)


def test_repeats_count_by_their_median():
    """One disturbed repeat of three does not change the figures."""
    laps = [lap for i, slow in enumerate((1, 50, 1)) for lap in pair("a", 4, 2 * slow, repeat=i)]

    assert row(laps).speedup == pytest.approx(2)


def test_one_other_token_in_one_repeat_takes_the_speed_away():
    laps = pair("a", 4, 2) + pair("b", 4, 2) + [lap("fast", "a", 2, [*TEN[:-1], 99], repeat=1)]
    laps += [lap("plain", "a", 4, TEN, repeat=1)]

    assert row(laps).speedup is None and row(laps).rate is None
    assert (row(laps).identical, row(laps).prompts) == (1, 2)


def test_a_missing_token_is_another_text():
    laps = [lap("plain", "a", 4, TEN), lap("fast", "a", 2, TEN[:-1])]

    assert row(laps).speedup is None


def test_a_baseline_that_contradicts_itself_is_no_baseline():
    laps = [*pair("a", 4, 2), lap("plain", "a", 4, [1, 2, 3], repeat=1)]

    assert row(laps).speedup is None
    assert row(laps, "plain").identical == 0


def test_a_label_excuses_from_equality():
    laps = [lap("plain", "a", 4, TEN), lap("fast", "a", 2, [7] * 11)]

    assert row(laps, labels={"fast": "LOSSY"}).speedup == pytest.approx(2)


def test_a_family_called_all_is_part_of_all():
    laps = pair("a", 4, 2, family="all") + pair("b", 4, 1, family="[other]")

    assert [(r.family, r.prompts) for r in rows(laps, {}) if r.contender == "fast"] == [("[other]", 1), ("all", 2)]


def test_names_are_shown_as_they_are(capsys):
    """Brackets are not interpreted as markup."""
    show_rows(rows(pair("a", 4, 2, family="[bold]") + pair("b", 4, 2, family="g"), {"fast": "LOSSY [/x]"}), [])
    out = capsys.readouterr().out

    assert "[bold], 1 prompts" in out and "LOSSY [/x]" in out


@pytest.mark.parametrize("name", ["n", "ngram", "ngram + draft-model", "a name that is longer than any of these lines"])
@pytest.mark.parametrize("label", [None, "LOSSY: synthetic acceptance of length 2.6: the text is meaningless"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("width", [36, 60, 70, *range(76, 84), 99, 200])
def test_a_table_fits_its_terminal_and_leaves_no_column_out(width, name, label, batch):
    """It is a list if it does not fit; no figure is cut."""
    figures = {"contender": name, "tokens_per_step": 2.5, "draft_acceptance": 0.5, "machine_rate": 1000.0}
    laps = pair("a", 4, 2) + pair("b", 4, 3)
    table_rows = [attrs.evolve(r, **figures, label=label) for r in rows(laps, {}) if r.family == "all"]
    columns = informative_columns(table_rows, False, batch)
    cells = cells_of(table_rows, columns, batch, 0.95)
    lines = lay_out(cells, width)
    words = " ".join(lines).split()

    assert max(map(len, lines)) <= width
    assert set(" ".join(title(c, batch, 0.95) for c in columns if c != "method").split()) <= set(words)
    for row in cells.rows:
        assert set(" ".join(row).split()) <= set(words)


def test_the_layout_depends_on_the_width_alone():
    table_rows = [r for r in rows(pair("a", 4, 2) + pair("b", 4, 3), {}) if r.family == "all"]
    names = ["a name of one line", "another"]
    table_rows = [attrs.evolve(r, contender=n) for r, n in zip(table_rows, names, strict=True)]
    cells = cells_of(table_rows, informative_columns(table_rows, False, 1), 1, 0.9)
    table, listed = (lay_out(cells, width) for width in (80, 30))

    assert table[0].startswith("method") and len(table) == 4
    assert listed[:3] == ["a name of one line", "  tokens/s   2.5", "  speedup    1.00×"]


def test_text_that_commands_a_terminal_is_shown_in_a_table():
    cells = Cells(["method", "speedup"], [["\x1b[2Jname", "[bold]1.00×"]], {"method"})

    assert [line for width in (80, 10) for line in lay_out(cells, width) if "\x1b" in line] == []
    assert "[bold]1.00×" in " ".join(lay_out(cells, 80)) and "\\x1b" in " ".join(lay_out(cells, 80))


def test_an_interval_of_a_higher_level_is_wider():
    laps = [lap for i, fast in enumerate((1, 1.5, 2, 2.5, 3, 4)) for lap in pair(str(i), 4, fast)]
    fast = [{(r.contender, r.family): r for r in rows(laps, {}, level=x)}["fast", "all"] for x in (0.5, 0.99)]

    assert fast[1].low < fast[0].low < fast[0].speedup < fast[0].high < fast[1].high


def test_the_wide_table_has_every_figure_that_there_is():
    """Columns without a figure in any row are left out: here there is one machine without an energy counter."""
    figures = {
        "tokens_per_step": 2.5,
        "draft_acceptance": 0.5,
        "mean_draft_length": 4.0,
        "conditional": [0.5],
        "tested_per_pos": [99],
        "hardware_bound": 4.0,
        "acceptance_bound": 2.0,
        "peak_bytes": 1 << 30,
        "cpu_speedup": 1.5,
        "spec_bench": {"mean_accepted_tokens": 2.5, "speedup": 1.4},
        "acceptance_length": AcceptanceLengths(2.5, 2.6, 2.5),
    }
    table_rows = [attrs.evolve(r, **figures) for r in rows(pair("a", 4, 2), {})]

    assert set(COLUMNS) - set(informative_columns(table_rows, True, 1)) == {
        "device GiB",
        "J/token",
        "between tokens ms",
        "interval",
        "worst family",
    }
    joules = [attrs.evolve(r, joules_per_token=0.25) for r in table_rows]
    assert "J/token" in informative_columns(joules, True, 1)


def test_with_several_sequences_the_rate_of_one_and_of_all_are_named(capsys):
    table_rows = [attrs.evolve(r, rate=100.0, machine_rate=350.0) for r in rows(pair("a", 4, 2), {})]
    show_rows(table_rows, [], batch=4)
    out = capsys.readouterr().out

    assert "tokens/s of each" in out and "tokens/s of all" in out and "350.0" in out
    show_rows(table_rows, [], batch=1)
    assert "tokens/s of" not in capsys.readouterr().out


def test_the_bounds_are_read_out_in_a_line(capsys):
    figures = {"hardware_bound": 2.6, "hardware_drafts": 8, "drafter_bound": 2.2, "acceptance_bound": 2.15}
    table_rows = [
        attrs.evolve(r, **figures, roof_fraction=0.93) for r in rows(pair("a", 4, 2), {}) if r.family == "all"
    ]
    show_rows(table_rows, [])

    assert (
        "fast: 0.93 of what its acceptance allows (2.15×); with every draft accepted 2.20×; "
        "the machine allows 2.60× (8 drafted tokens per step)\n"
    ) in capsys.readouterr().out


def record_of_drafts(times: int, tokens: int, kept: int) -> DraftStatistics:
    """Steps with drafts of equal length; the first ``kept`` tokens of each are accepted."""
    tested = {min(tokens, kept + 1): times}
    return DraftStatistics(steps=times, drafts=times, reached={tokens: times}, tested=tested, kept={kept: times})


def test_one_accepted_draft_does_not_look_like_hundreds():
    """Two positions of 300 drafts, and a third position of one draft, which is shown with its count."""
    laps = pair("a", 4, 2)
    draft_statistics = record_of_drafts(300, 2, 2)
    draft_statistics.merge(record_of_drafts(1, 3, 3))
    laps[1].records[0].draft_statistics.merge(draft_statistics)
    fast = row(laps)

    assert (fast.drafted_per_pos, fast.tested_per_pos, fast.accepted_per_pos) == ([301, 301, 1],) * 3
    assert by_position(fast) == "100%, 100%, 100% of 1"


@pytest.mark.parametrize(("times", "shown"), [(FEW, "100%, 0%"), (FEW - 1, f"100% of {FEW - 1}, 0% of {FEW - 1}")])
def test_a_position_where_nothing_was_accepted_is_shown(times, shown):
    laps = pair("a", 4, 2)
    laps[1].records[0].draft_statistics.merge(record_of_drafts(times, 3, 1))

    assert by_position(row(laps)) == shown


def test_processor_time_gives_a_speedup_of_its_own():
    """Wall time was disturbed, processor time was not: tokens over seconds, medians over repeats."""
    times = [(9, 5, 2, 2), (5, 5, 4, 2)]
    laps = [
        one
        for i, (slow, cpu, fast, own) in enumerate(times)
        for one in (lap("plain", "a", slow, TEN, i, cpu=cpu), lap("fast", "a", fast, TEN, i, cpu=own))
    ]

    assert row(laps).speedup == pytest.approx(7 / 3)
    assert (row(laps).cpu_rate, row(laps).cpu_speedup) == (5, 2.5)


def test_no_processor_time_gives_no_rate():
    assert (row(pair("a", 4, 2)).cpu_rate, row(pair("a", 4, 2)).cpu_speedup) == (None, None)


def test_a_text_of_one_token_has_no_rate():
    laps = [lap("plain", "a", 0, [1]), lap("fast", "a", 0, [1])]

    assert row(laps).rate is None and row(laps).speedup is None


@pytest.mark.parametrize(
    ("a", "b", "at"),
    [([1, 2, 3], [1, 5, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [1], 0)],
    ids=["other", "longer", "empty"],
)
def test_the_first_difference_is_where_one_ends_at_the_latest(a, b, at):
    assert first_difference(a, b) == at


def test_prompts_have_seeds_of_their_own_that_stay():
    a, b = (Prompt(i, "f", "x") for i in "ab")

    assert a.seed(0) != b.seed(0) != a.seed(1)
    assert a.seed(0) == Prompt("a", "other", "other").seed(0) < 2**64


def test_batches_never_mix_families():
    prompts = [Prompt(str(i), family, "x") for i, family in enumerate("uvuvu")]

    assert [[p.id for p in group] for group in batches(prompts, 2)] == [["0", "2"], ["4"], ["1", "3"]]


def test_rotation_comes_round():
    assert [rotate_names(["a", "b", "c"], i)[0] for i in range(4)] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("spec", "methods"),
    [
        ("ngram", ["ngram"]),
        ("ngram+draft-model=x.gguf", ["ngram", "draft-model=x.gguf"]),
        ("draft-model=c++.gguf", ["draft-model=c++.gguf"]),
        ("draft-model=a+b.gguf+ngram", ["draft-model=a+b.gguf", "ngram"]),
    ],
)
def test_a_plus_joins_methods_and_may_stand_in_a_file_name(spec, methods):
    assert split_methods(spec, common.installed_names()) == methods


def test_a_path_among_settings_is_named_by_its_stem():
    chains = [["draft-model:file=/a/long/tiny.gguf,draft_max=4"], ["eagle3=/b/head"], ["x:file=/a/m.gguf", "ngram"]]

    assert names(chains) == ["draft-model:file=tiny,draft_max=4", "eagle3", "x + ngram"]
    assert names([["x=a/m.gguf"], ["x=b/m.gguf"]]) == ["x=a/m.gguf", "x=b/m.gguf"], "stems are equal"


def test_contenders_of_one_name_are_told_apart_by_their_files():
    chains = [["ngram"], ["draft-model=dir/a.gguf"], ["draft-model=dir/b.gguf"]]

    assert names(chains) == ["ngram", "draft-model=a", "draft-model=b"]
