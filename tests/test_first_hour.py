"""A new user's first hour: install, quickstart, an own method, a comparison, and compatibility."""

from __future__ import annotations

import json
import shutil

import attrs
import pytest
from spec_zoo import ZOO

from tests.support.installed import ROOT, Environment, environment
from tests.support.pages import follow

pytestmark = pytest.mark.slow

MODELS = ROOT / "plugins" / "models" / "spec_zoo" / "models"
SHIPPED = {"model.gguf": ZOO["pico"].file, "small.gguf": ZOO["pico-draft"].file}
"""Files of the reader that the quickstart names, and the test's substitutes."""


@pytest.fixture(scope="module")
def hour(wheel, tmp_path_factory):
    """(a fresh environment with the wheel, an empty folder)."""
    folder = tmp_path_factory.mktemp("hour")
    return environment(folder / "env", wheel), folder


@attrs.frozen
class Newcomer:
    """Does what a page says, but for the installation: that is done."""

    env: Environment

    def shell(self, script, cwd):
        commands = [line for line in script.splitlines() if line.startswith("spec ")]
        return self.env.shell("\n".join(commands), cwd)

    def python(self, source, cwd):
        return self.env.python(source, cwd)


@pytest.mark.release
def test_the_quickstart_can_be_followed(hour):
    """Its commands to the letter, with models of the reader's own; its Python prints what it says."""
    env, folder = hour
    for name, shipped in SHIPPED.items():
        shutil.copy(MODELS / shipped, folder / name)

    follow(ROOT / "docs" / "quickstart.md", Newcomer(env), folder)


@pytest.mark.release
def test_a_method_is_begun_tested_and_compared(hour):
    """`spec new` writes a package whose tests pass; installed, it is compared by name, with plain decoding's text."""
    env, folder = hour
    env.shell("spec new method recall\ncd spec-recall\npip install -q -e .\npytest -q -k 'survived or budget'", folder)
    env.shell(
        "spec compare -m zoo:pico --method recall --method ngram -n 16 --limit 1 --repeats 1 --threads 1 --out results",
        folder,
    )
    summary = json.loads((folder / "results" / "summary.json").read_text("utf-8"))
    whole = {row["contender"]: row for row in summary["rows"] if row["family"] == "all"}

    assert set(whole) == {"plain", "recall", "ngram"}
    assert all(row["identical"] == row["prompts"] for row in whole.values())
    assert whole["recall"]["tokens_per_step"] > 1


def test_what_fits_together_is_reported(hour):
    """Each plugin with what it drafts, needs and owns; what does not fit is refused with what to do."""
    env, folder = hour
    fits = env.shell("spec compat -m zoo:pico-hybrid --method ngram --method mtp", folder)
    refused = env.shell("spec compat -m zoo:pico --method mtp || test $? = 2", folder)

    assert "ngram: drafts deterministic\n" in fits
    assert "gdn-rollback: owns recurrent" in fits
    assert "mtp: " in refused
