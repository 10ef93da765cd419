"""The page of promises, made from the table of broken plugins: ``python -m tests.kit.promises docs``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from spec_core.testing.conformance.promise import promises
from tests.support.broken_plugins import CASES, KITS, Case

PAGE = "promises.md"
HEAD = """# Promises

What the contract promises, as tests that a plugin inherits.
Beside every promise stands a plugin of our tests that breaks it, and the check that must catch it.
A healthy plugin that differs in that alone must pass.
This page is made from that table: `python -m tests.kit.promises docs`.

```python
from spec_core.testing import DrafterConformance


class TestEcho(DrafterConformance):
    def make(self):
        return Echo()
```

`make` returns a fresh plugin.
Three more methods may be overridden.
`target` is for a plugin that needs a target of its own, `owner` for the owner of that target's recurrent state.
`prompts` is for a method that has nothing to say after the kit's own.

A check that fails quotes the promise, says what was found and after which prompt and seed, and how to see it alone.
`pytest --conformance` ends with a list of promises kept and broken per class.
The fixtures `toy_target`, `toy_rollback` and `conformance` are there wherever the package is installed.

What a plugin does on purpose it declares, as attributes of its class:
"""
DECLARED = [
    ('learns_from_verdicts = "length"', "a method", "how earlier drafts fared may change how long later ones are"),
    ('learns_from_verdicts = "tokens"', "a method", "and what is in them"),
    ("shares_between_sequences = True", "a method", "one text may change the drafts of another"),
    (
        "keeps_former_text = True",
        "a method",
        "on a slot used again, tokens of the former text are compared and used",
    ),
    (
        "tolerance",
        "an owner, a target",
        "share of the largest number that results may differ by; None goes by the dtype",
    ),
    ("batch_tolerance", "a target", "the same for rows alone and among others; 0, the default, is bit-equal"),
    ("samples", "a rule", "texts per test of a distribution"),
    ("temperatures", "all", "of the kit's requests"),
]


def declared() -> str:
    rows = [f"| `{name}` | {whose} | {meaning} |" for name, whose, meaning in DECLARED]
    return "\n".join(["| attribute | of | meaning |", "| --- | --- | --- |", *rows, ""])


def page() -> str:
    return "\n".join([HEAD, declared(), *(section(name, kit) for name, kit in KITS.items())])


def section(title: str, kit: type) -> str:
    """One conformance class."""
    rows = [row(check, promise, kit) for check, promise in promises(kit)]
    head = ["| promise | broken plugin | test that catches it |", "| --- | --- | --- |"]
    return "\n".join([f"## {title}: `{kit.__name__}`", "", *head, *rows, ""])


def row(check: str, promise: str, kit: type) -> str:
    broken = "; ".join(shown(case) for case in CASES if case.kit is kit and case.check == check)
    return f"| {promise} | {broken} | `{check}` |"


def shown(case: Case) -> str:
    does = inspect.getdoc(case.broken).split(".")[0]
    return f"`{case.broken.__name__}`: {does[0].lower() + does[1:]}"


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), "utf-8")
