"""Memory and energy, read from files like those of Linux, and percentiles: nothing of this machine is asserted."""

from __future__ import annotations

import attrs
import pytest
from spec_compare.figures import latency
from spec_compare.measuring import energy
from spec_compare.measuring.energy import Counter, Meter, rapl

from tests.compare.test_summary import TEN, lap, pair, row


@pytest.fixture
def status(tmp_path):
    """The state of a process as /proc shows it: (status, clear_refs)."""
    file, clear = tmp_path / "status", tmp_path / "clear_refs"
    file.write_text("Name:\tpython\nVmPeak:\t  9000 kB\nVmHWM:\t  2048 kB\n")
    clear.write_text("")
    return file, clear


def test_the_peak_is_reset_before_a_lap_and_read_after_it(status):
    meter = Meter("cpu", *status)
    meter.begin()

    assert status[1].read_text() == energy.RESET_PEAK
    assert meter.end() == energy.Usage(2048 * 1024, None, None)


def test_a_peak_that_cannot_be_reset_is_not_reported(status, tmp_path):
    meter = Meter("cpu", status[0], tmp_path)
    meter.begin()

    assert meter.end().peak_bytes is None


@pytest.fixture
def packages(tmp_path):
    """Two processor packages, a part of the first, and one that only root may read."""
    for name, joules, range_max in (("0", "5000000", "9000000"), ("0:0", "1", "2"), ("1", "2500000", "9000000")):
        zone = tmp_path / f"intel-rapl:{name}"
        zone.mkdir()
        (zone / "energy_uj").write_text(joules)
        (zone / "max_energy_range_uj").write_text(range_max)
    (tmp_path / "intel-rapl:2").mkdir()
    return tmp_path


def test_energy_is_the_sum_of_the_processor_packages(packages, status):
    meter = Meter("cpu", *status, counters=rapl(packages))
    meter.begin()
    (packages / "intel-rapl:0" / "energy_uj").write_text("6500000")
    (packages / "intel-rapl:1" / "energy_uj").write_text("3000000")

    assert meter.end().joules == 2.0


def test_a_counter_that_started_again_is_continued(packages):
    first = rapl(packages)[0]
    (packages / "intel-rapl:0" / "energy_uj").write_text("1000000")

    assert first.since(5.0) == 5.0
    assert Counter(lambda: 1.0).since(5.0) == -4.0


def test_a_machine_without_counters_reports_nothing(tmp_path, status):
    assert rapl(tmp_path) == [] == energy.nvml("cpu")
    meter = Meter("cpu", *status)
    meter.begin()
    assert meter.end().joules is None


def test_this_process_can_be_metered():
    meter = Meter.of("cpu")
    meter.begin()
    used = meter.end()

    assert used.device_peak_bytes is None
    assert used.peak_bytes is None or used.peak_bytes > 1 << 20
    assert used.joules is None or used.joules >= 0


def test_percentiles_are_those_of_numpy():
    assert latency.percentiles([4, 1, 3, 2, 5]) == pytest.approx({"p50": 3, "p90": 4.6, "p99": 4.96})
    assert latency.percentiles([7]) == {"p50": 7, "p90": 7, "p99": 7}
    assert latency.percentiles([]) == {}


def steps(group, seconds, emitted):
    group.records[0].steps.seconds.extend(seconds)
    group.records[0].steps.emitted.extend(emitted)
    return group


def test_tokens_of_one_step_come_together():
    """The time between tokens is that between steps with an output, as vLLM counts it."""
    plain, fast = pair("a", 4, 2)
    table_row = row([plain, steps(fast, [1.0, 2.0, 3.0], [4, 0, 2])])

    assert table_row.between_tokens["p50"] == 2.0
    assert table_row.first_token["p50"] == 1


def test_the_rate_of_the_machine_counts_all_sequences_and_prefill():
    """Two laps of eleven tokens in five and three seconds."""
    laps = [lap("plain", "a", 4, TEN), lap("plain", "b", 2, TEN)]

    assert row(laps, "plain").machine_rate == 22 / 8


def test_memory_is_the_highest_of_the_laps_and_energy_is_per_token():
    first, second = lap("plain", "a", 4, TEN), lap("plain", "b", 4, TEN)
    metered = [attrs.evolve(first, peak_bytes=5, joules=11.0), attrs.evolve(second, peak_bytes=7, joules=33.0)]

    assert (row(metered, "plain").peak_bytes, row(metered, "plain").joules_per_token) == (7, 2.0)
    assert row([metered[0], second], "plain").joules_per_token is None, "one lap has no figure"


def test_no_time_is_shown_if_a_text_differs():
    laps = [lap("plain", "a", 4, TEN), steps(lap("fast", "a", 2, TEN[:-1]), [1.0], [1])]
    table_row = row([attrs.evolve(one, joules=1.0) for one in laps])

    assert (table_row.machine_rate, table_row.first_token, table_row.between_tokens, table_row.joules_per_token) == (
        None,
        {},
        {},
        None,
    )
