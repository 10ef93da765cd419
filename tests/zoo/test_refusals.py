"""Errors that metadata show are refused before a weight is read, also by the program."""

from __future__ import annotations

import pytest
from spec_cli.main import run_command

REFUSED = {
    "no-nextn-layer": ["-m", "zoo:pico", "--method", "mtp"],
    "unknown-method": ["-m", "zoo:pico", "--method", "ngrm"],
    "unknown-owner": ["-m", "zoo:pico-hybrid", "--method", "ngram", "--rollback", "nope"],
    "foreign-setting": ["-m", "zoo:pico", "--method", "ngram", "-o", "suffix.width=2"],
    "too-many-snapshots": [
        *("-m", "zoo:pico-hybrid", "--method", "ngram"),
        *("-o", "gdn-rollback.strategy=snapshot", "-o", "gdn-rollback.n=100000000"),
    ],
}


@pytest.mark.parametrize("command", ["generate", "compare"])
@pytest.mark.parametrize("case", REFUSED)
def test_no_weight_is_read_for_a_run_that_is_refused(command, case, monkeypatch, capsys):
    def read(*arguments):
        raise AssertionError("weights are read")

    monkeypatch.setattr("spec_targets.runtime.plan.load_executor", read)
    text = ["-p", "x"] if command == "generate" else ["--limit", "1"]

    assert run_command([command, *REFUSED[case], *text, "-n", "2"]) == 2
    assert "weights are read" not in capsys.readouterr().err
