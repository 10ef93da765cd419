"""Every rule has a page, with the settings it has."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from spec_core.assembly.discovery import discover_plugins, import_plugin

PAGES = Path(__file__).parents[2] / "docs" / "rules"
RULES = [entry for entry in discover_plugins(["rule"]) if entry.distribution == "spec-core"]


def default_text(default: object) -> str:
    """A default as pages write it; nothing for None."""
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    if isinstance(default, bool):
        return str(default).lower()
    return "" if default is None else str(default)


@pytest.mark.parametrize("rule", RULES, ids=lambda entry: entry.name)
def test_every_setting_of_a_rule_is_on_its_page(rule):
    """With the default the class has; and the list of rules leads there."""
    text = (PAGES / f"{rule.name}.md").read_text("utf-8")
    fields = [f for f in attrs.fields(import_plugin(rule)) if f.init]
    shown = {f.name: default_text(f.default) for f in fields}

    assert shown == dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.M))
    assert f"[`{rule.name}`]({rule.name}.md)" in (PAGES / "README.md").read_text("utf-8")


def test_a_lossy_rule_says_so_at_the_top_of_its_page():
    first_lines = {page.stem: page.read_text("utf-8").splitlines()[2] for page in PAGES.glob("*.md")}

    assert {name for name, line in first_lines.items() if line in ("LOSSY.", "NOT REAL TEXT.")} == {
        "typical",
        "synthetic",
    }
