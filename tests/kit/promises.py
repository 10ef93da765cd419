"""The page of promises, made from the table of broken plugins: ``python -m tests.kit.promises docs``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from spec_core.testing.conformance.promise import promises
from tests.broken_plugins import CASES, KITS

PAGE = "promises.md"
HEAD = """# Promises

What the contract promises, as tests that a plugin inherits: `from spec_core.testing import DrafterConformance`.
Beside every promise stands a plugin of our tests that breaks it, and the check that must catch it.
This page is made from that table: `python -m tests.kit.promises docs`.
"""


def page() -> str:
    return "\n".join([HEAD, *(section(name, kit) for name, kit in KITS.items())])


def section(title: str, kit: type) -> str:
    """One conformance class."""
    rows = [row(check, promise, kit) for check, promise in promises(kit)]
    head = ["| promise | broken plugin | test that catches it |", "| --- | --- | --- |"]
    return "\n".join([f"## {title}: `{kit.__name__}`", "", *head, *rows, ""])


def row(check: str, promise: str, kit: type) -> str:
    """Every promise has exactly one case."""
    (case,) = (case for case in CASES if case.kit is kit and case.check == check)
    does = inspect.getdoc(case.broken).split(".")[0]
    return f"| {promise} | `{case.broken.__name__}`: {does[0].lower() + does[1:]} | `{check}` |"


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), "utf-8")
