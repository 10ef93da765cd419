"""The pytest plugin of spec-core: fixtures, and a report of promises. It imports torch only when needed.

``pytest --conformance`` lists, per conformance class, how many promises are kept and which are broken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from spec_core.testing import ToyRollback, ToyTarget

WORDS = {"passed": "kept", "failed": "broken", "skipped": "not applicable"}
UNCHECKED = "not checked"
"""Outcome of checks that fail because the plugin fails at every request."""


@pytest.fixture
def toy_target() -> ToyTarget:
    """A new toy hybrid target: attention rows, a gated delta state and a convolution window."""
    from spec_core.testing import ToyTarget

    return ToyTarget()


@pytest.fixture
def toy_rollback() -> ToyRollback:
    """A new owner of the toy target's recurrent state."""
    from spec_core.testing import ToyRollback

    return ToyRollback()


@pytest.fixture
def conformance() -> Callable[..., Any]:
    """``conformance(DrafterConformance, make)``: all checks of a plugin, as a list of outcomes."""
    from spec_core.testing.conformance.report import check_conformance

    return check_conformance


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("spec-core").addoption(
        "--conformance", action="store_true", help="list the promises that conformance classes found kept and broken"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the promise to the report, which may travel between processes."""
    report = yield
    sentence = getattr(getattr(item, "obj", None), "promise", None)
    if sentence is not None and item.parent is not None:
        report.user_properties.append(("promise", sentence))
        report.user_properties.append(("plugin", item.parent.name))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("conformance"):
        return
    results = outcomes(terminalreporter.stats)
    terminalreporter.section("conformance")
    for plugin, by_result in results.items():
        counts = ", ".join(f"{len(reports)} {result}" for result, reports in by_result.items() if reports)
        terminalreporter.line(f"{plugin}: {counts}")
        for sentence in by_result["broken"]:
            terminalreporter.line(f"  broken: {sentence}")


def outcomes(stats: dict[str, list[Any]]) -> dict[str, dict[str, list[str]]]:
    """{plugin's class: {"kept", "broken", "not applicable" or "not checked": promises}} from pytest's reports."""
    results: dict[str, dict[str, list[str]]] = defaultdict(lambda: {word: [] for word in (*WORDS.values(), UNCHECKED)})
    for result, word in WORDS.items():
        for report in stats.get(result, []):
            properties = dict(getattr(report, "user_properties", ()))
            if "promise" in properties:
                unchecked = str(report.longrepr).startswith(UNCHECKED)
                results[properties["plugin"]][UNCHECKED if unchecked else word].append(properties["promise"])
    return results
