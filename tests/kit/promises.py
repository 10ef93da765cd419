"""The page of promises, made from the table of broken plugins: ``python -m tests.kit.promises docs``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from spec_core.testing.conformance.promise import promises
from tests.support.broken_plugins import CASES, KITS, Case

PAGE = "promises.md"
HEAD = """# Promises

The promises of the contract, as tests that a plugin's author inherits.
For every promise the tests have a plugin that breaks it, and the check that must catch it.
A correct plugin that differs in nothing else must pass.
This page is made from that table: `python -m tests.kit.promises docs`.

```python
from spec_core.testing import DrafterConformance


class TestEcho(DrafterConformance):
    def make(self):
        return Echo()
```

`make` returns a new plugin.
Three more methods may be overridden.
`target` returns the target for a plugin that needs a certain one, `owner` the owner of that target's recurrent state.
`prompts` returns prompts for a method that drafts nothing after the kit's own.

A failed check quotes the promise, the finding with its prompt and seed, and the command that runs this check alone.
`pytest --conformance` ends with a list of promises kept and broken per class.
The fixtures `toy_target`, `toy_rollback` and `conformance` are available wherever the package is installed.

A plugin declares intended deviations as attributes of the test class:
"""
DECLARED = [
    ('learns_from_verdicts = "length"', "a method", "earlier verdicts may change the length of later drafts"),
    ('learns_from_verdicts = "tokens"', "a method", "earlier verdicts may change the tokens of later drafts"),
    ("shares_between_sequences = True", "a method", "one text may change the drafts of another"),
    (
        "keeps_former_text = True",
        "a method",
        "on a reused slot, tokens of the earlier text may be drafted, if compared before use",
    ),
    (
        "tolerance",
        "an owner, a target",
        "share of the largest value by which results may differ; None selects it by dtype",
    ),
    ("batch_tolerance", "a target", "the same for rows alone and in a batch; 0, the default, means equal bits"),
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
