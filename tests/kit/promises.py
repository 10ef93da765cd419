"""The page of promises, made from the tests of the kit: ``python -m tests.kit.promises docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from spec_core.testing.conformance.promise import promises
from tests.support.broken_plugins import KITS

PAGE = "promises.md"
HEAD = """# Promises

The promises of the contract, as tests that the test class of a plugin inherits.
For every test there is a plugin in `tests/kit` that breaks this promise alone and must fail it;
a correct plugin that differs only in this point must pass.
This page is generated: `python -m tests.kit.promises docs`.

```python
from spec_core.testing import DrafterConformance


class TestEcho(DrafterConformance):
    def make(self):
        return Echo()
```

`make` returns a new instance of the plugin.
Three more methods may be overridden: `target`, if the plugin needs a particular one;
`owner`, of that target's recurrent state; `prompts`, if the method drafts nothing after the kit's.

A failed check reports the promise, what was found, the prompt and seed, and the command that runs this check alone.
`spec check NAME` runs the same checks on an installed plugin; `--badge FILE` writes the result as a picture.
`pytest --conformance` prints the kept and broken promises of each class at the end.
The fixtures `toy_target`, `toy_rollback` and `conformance` are available wherever the package is installed.

A method declares in its `Compat` what it learns, so that `spec check` needs no flags:

| `Compat` | meaning |
| --- | --- |
| `learns="length"` | earlier verdicts may change the length of later drafts |
| `learns="tokens"` | earlier verdicts may change the length and tokens of drafts |
| `shares_learning=True` | one text may change the drafts of another with the same cache salt |
| `keeps_former_text=True` | on a reused slot the method may use tokens of the previous text |

Other limits are attributes of the test class:
"""
DECLARED = [
    (
        "tolerance",
        "an owner, a target",
        "max difference of results, as a share of the largest value; None: chosen by dtype",
    ),
    ("batch_tolerance", "a target", "the same between a row alone and in a batch; the default 0 requires equal bits"),
    ("samples", "a rule", "number of texts per test of a distribution"),
    ("temperatures", "all", "temperatures of the kit's requests"),
]


def declared_table() -> str:
    rows = [f"| `{name}` | {whose} | {meaning} |" for name, whose, meaning in DECLARED]
    return "\n".join(["| attribute | of | meaning |", "| --- | --- | --- |", *rows, ""])


def page() -> str:
    kits = {title: dict(promises(kit)) for title, kit in KITS.items()}
    shared = {
        check: text for checks in kits.values() for check, text in checks.items() if owners(kits, check, text)[1:]
    }
    parts = [f"## {title}: `{KITS[title].__name__}`\n\n{list_promises(kits[title], shared)}\n" for title in kits]
    several = [f"- `{check}` ({', '.join(owners(kits, check, text))}): {text}" for check, text in shared.items()]
    return "\n".join([HEAD, declared_table(), *parts, "## Promises of several kinds\n", *several, ""])


def owners(kits: dict[str, dict[str, str]], check: str, text: str) -> list[str]:
    """Titles of the kits that have this check with this promise."""
    return [title.lower() for title, checks in kits.items() if checks.get(check) == text]


def list_promises(checks: dict[str, str], shared: dict[str, str]) -> str:
    """The promises of one kit that no other kit has."""
    return "\n".join(f"- `{check}`: {text}" for check, text in checks.items() if shared.get(check) != text)


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), "utf-8")
