"""A skipped check of the kit must be listed by the engine's adapter; a choice of vLLM's runner ends with its test."""

from __future__ import annotations

import pytest
from spec_engines.vllm import SECOND_RUNNER

from spec_core.testing import TargetConformance


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    kit = item.cls is not None and issubclass(item.cls, TargetConformance)
    if kit and call.when == "call" and report.skipped and item.originalname not in item.module.ENGINE.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.originalname} was skipped, ENGINE.skipped of the adapter does not list it"
    return report


@pytest.fixture(autouse=True)
def runner_variable(monkeypatch):
    """Without a choice of vLLM's model runner, which ``options`` writes; restored afterwards."""
    monkeypatch.setenv(SECOND_RUNNER, "0")
    monkeypatch.delenv(SECOND_RUNNER)
