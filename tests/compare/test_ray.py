"""``--executor ray`` on a local cluster of two machines with one processor each."""

from __future__ import annotations

import json
import sys

import pytest
from spec_cli.main import run_command
from spec_compare.measuring.shard import Shard
from spec_compare.records.reading import read_results
from spec_ray import comparing

COMMON = ["compare", "-m", "zoo:pico", "--threads", "1", "--no-bounds", "--family", "edit", "--limit", "2", "-n", "12"]
SWEEP = ["--method", "ngram", "--sweep", "ngram.draft_max=2,4,8"]


def test_every_contender_is_in_one_part_and_neighbours_stay_together():
    parts = [Shard(n, 3).of("abcdefgh") for n in range(3)]

    assert "".join(map("".join, parts)) == "abcdefgh" and sorted(map(len, parts)) == [2, 3, 3]
    assert Shard().of("abc") == list("abc")


def test_options_that_make_no_sense_are_refused(tmp_path, capsys):
    assert run_command([*COMMON, *SWEEP, "--ray-address", "a:1"]) == 2
    assert "without --executor ray" in capsys.readouterr().err
    assert run_command([*COMMON, *SWEEP, "--executor", "ray"]) == 2
    assert "--executor ray needs --out DIR" in capsys.readouterr().err
    out, report = str(tmp_path / "out"), str(tmp_path / "report.html")
    assert run_command([*COMMON, *SWEEP, "--executor", "ray", "--out", out, "--report", report]) == 2
    assert "--report is one of one machine" in capsys.readouterr().err


def test_ray_that_is_missing_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run_command([*COMMON, *SWEEP, "--executor", "ray", "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'spec-core[ray]'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def address():
    """Of a cluster of two machines, both here."""
    pytest.importorskip("ray", reason="the extra [ray]")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        small = {"num_cpus": 1, "object_store_memory": 80 << 20}
        cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        cluster.add_node(**small)
        cluster.wait_for_nodes()
        yield cluster.address
        cluster.shutdown()


@pytest.mark.slow
def test_each_machine_measures_its_part_beside_its_own_plain_decoding(address, tmp_path, capsys):
    command = [*COMMON, *SWEEP, "--executor", "ray", "--ray-address", address, "--out", str(tmp_path)]
    assert run_command([*command, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["parts"]
    parts = {name: read_results(tmp_path / name) for name in ("part-0", "part-1")}

    assert {name: [c.name for c in p.header.contenders] for name, p in parts.items()} == {
        "part-0": ["plain", "ngram:draft_max=2"],
        "part-1": ["plain", "ngram:draft_max=4", "ngram:draft_max=8"],
    }
    for name, part in parts.items():
        assert part.complete and len(part.laps) == 2 * len(part.header.contenders)
        assert json.loads((tmp_path / name / "summary.json").read_text("utf-8"))["rows"] == shown[name]["rows"]
        assert part.header.command == sys.argv
    texts = [[r.tokens for lap in p.laps if lap.contender == "plain" for r in lap.records] for p in parts.values()]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_finished_laps_of_a_worker_that_dies_are_kept(address, tmp_path, capsys, monkeypatch):
    """One worker ends after two laps; the other one finishes. The same command goes on."""

    def dying(job):
        import os
        import time

        from spec_ray.worker import messages

        for number, message in enumerate(messages(job)):
            yield message
            if number == 2 and job.part.number == 1:
                time.sleep(2)  # until what was sent has arrived
                os._exit(1)

    command = [*COMMON, *SWEEP, "--executor", "ray", "--ray-address", address, "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(comparing, "messages", dying)
        assert run_command(command) == 1
    error = capsys.readouterr().err

    assert "the worker of part-1 on" in error and f"finished laps are in {tmp_path / 'part-1'}" in error
    assert read_results(tmp_path / "part-0").complete and len(read_results(tmp_path / "part-1").laps) == 2

    assert run_command(command) == 0
    after = read_results(tmp_path / "part-1")
    assert after.complete and [s.laps for s in after.sessions] == [2]
    assert sorted(lap.number for lap in after.laps) == list(range(6))


@pytest.mark.slow
def test_an_error_of_a_worker_is_that_of_the_command(address, tmp_path, capsys):
    methods = ["--method", "ngram", "--method", "eagle3=nowhere.gguf"]
    command = [*COMMON, *methods, "--executor", "ray", "--ray-address", address, "--out", str(tmp_path)]
    assert run_command(command) == 2
    error = capsys.readouterr().err

    assert "part-1 on" in error and "nowhere.gguf" in error and "Traceback" not in error
    assert read_results(tmp_path / "part-0").complete
