"""The documentation says what is there: its examples run, its tables and hooks are the program's own."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import attrs
import pytest
from spec_methods.draft_model import DraftModel
from spec_methods.ngram import Ngram

from spec_core import hookspecs
from spec_core.commands.document import document
from spec_core.guard import HOOKS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_the_example_of_the_readme_runs(capsys):
    """It is executed as it stands."""
    source = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)[1]
    exec(compile(source, "README.md", "exec"), {})

    assert "tokens per step" in capsys.readouterr().out


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_in_the_manual_with_its_arguments(hook):
    arguments = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)

    assert f"## {hook}({arguments})" in (DOCS / "hooks.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["hooks.md", "settings.md"])
def test_generated_pages_are_up_to_date(page):
    """Mend with ``python -m spec_core.commands.document docs``."""
    assert document(page) == (DOCS / page).read_text("utf-8")


@pytest.mark.parametrize(("page", "plugin"), [("ngram", Ngram), ("draft-model", DraftModel)])
def test_every_setting_of_a_method_is_on_its_page(page, plugin):
    """With the default the class has."""
    text = (DOCS / "methods" / f"{page}.md").read_text("utf-8")
    for field in attrs.fields(plugin):
        if field.init:
            default = "" if field.default is None else str(field.default)
            shown = default.lower() if isinstance(field.default, bool) else default
            assert re.search(rf"\| `{field.name}` \| {re.escape(shown)} ?\|", text), field.name


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
