"""A check of the kit that is skipped on an engine must be listed, with its reason, by the engine's adapter."""

from __future__ import annotations

import pytest

from spec_core.testing import TargetConformance


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    kit = item.cls is not None and issubclass(item.cls, TargetConformance)
    if kit and call.when == "call" and report.skipped and item.originalname not in item.module.ENGINE.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.originalname} was skipped, ENGINE.skipped of the adapter does not list it"
    return report
