"""Distributions of others that are broken, or that take a name twice: said aloud, and in nobody else's way."""

from __future__ import annotations

import importlib
import sys

import pytest

from spec_core import Run, UsageError
from spec_core.cli import run
from spec_core.discovery import GROUPS
from spec_core.testing import ToyTarget

METHOD = """
from spec_core import Draft, hookimpl

class Ones:
    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            step.propose(seq, Draft([1]))
"""


@pytest.fixture
def installs(tmp_path, monkeypatch):
    """Install a distribution for one test: its name, the source of its module, its entry points by kind."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, source: str, **points: str) -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source, "utf-8")
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
        lines = [f"[{GROUPS[kind]}]\n{point.replace('@', module)}\n" for kind, point in points.items()]
        (folder / "entry_points.txt").write_text("\n".join(lines), "utf-8")
        importlib.invalidate_caches()

    yield install
    for module in [m for m in sys.modules if m.startswith("spec_theirs")]:
        del sys.modules[module]


def test_a_distribution_is_found_by_its_metadata(installs):
    """The folder of this test is as good as an installation."""
    installs("spec-theirs", METHOD, method="ones = @:Ones")

    result = Run(ToyTarget(recurrent=False), ["ones"]).generate([1, 2], n=5).result

    assert result.stats["drafted"] > 0


BROKEN = {
    "raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "syntax": ("def draft(:", "SyntaxError: invalid syntax (spec_theirs_broken.py, line 1)"),
    "imports-what-is-not-there": ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
    "has-another-name": ("class Two: pass", "has no attribute 'Ones'"),
    "cannot-even-say-why": ("class E(Exception):\n    __str__ = None\nraise E", "cannot be printed"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_a_plugin_that_cannot_be_imported_is_named_with_its_distribution(installs, way):
    """And with the reason; the others run."""
    source, reason = BROKEN[way]
    installs("spec-theirs-broken", source, method="broken = @:Ones")
    installs("spec-theirs", METHOD, method="ones = @:Ones")

    with pytest.raises(UsageError) as error:
        Run(ToyTarget(recurrent=False), ["broken"])

    assert error.value.reason.startswith("method 'broken' of spec-theirs-broken 1.0 cannot be imported")
    assert reason in error.value.reason
    assert "pip uninstall spec-theirs-broken" in error.value.mend
    assert Run(ToyTarget(recurrent=False), ["ones"]).generate([1, 2], n=5).result.stats["drafted"] > 0


def test_a_command_that_cannot_be_imported_does_not_take_the_help_away(installs, capsys):
    """Its line says so."""
    installs("spec-theirs", "raise RuntimeError('no licence')", command="theirs = @:command")

    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert "RuntimeError: no licence" in out
    assert "generate" in out
    assert run(["theirs"]) == 2


@pytest.mark.parametrize("kind", ["method", "control"])
def test_a_name_that_two_distributions_have_is_refused(installs, kind):
    """Not the one that happens to come first: a text's speed would depend on the order of installation."""
    installs("spec-theirs", METHOD, method="ones = @:Ones")
    installs("spec-theirs-too", METHOD, **{kind: "ones = @:Ones"})

    with pytest.raises(UsageError, match="several plugins") as error:
        Run(ToyTarget(recurrent=False), ["ones"])

    assert "method of spec-theirs 1.0" in error.value.reason
    assert f"{kind} of spec-theirs-too 1.0" in error.value.reason


def test_nobody_takes_the_place_of_a_command(installs, capsys):
    """Also not of ours."""
    source = "import click\n\n@click.command()\ndef mine(): click.echo('stolen')"
    installs("spec-theirs", source, command="env = @:mine")

    assert run(["env"]) == 2
    captured = capsys.readouterr()
    assert "several plugins" in captured.err
    assert "stolen" not in captured.out
