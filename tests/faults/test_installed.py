"""Broken packages, and packages that use a name twice: reported, without effect on other plugins."""

from __future__ import annotations

import importlib
import sys

import pytest
from spec_cli.main import run_command

from spec_core import Refused, Run, UsageError
from spec_core.assembly.discovery import GROUPS
from spec_core.testing import ToyTarget
from tests.support.toy_plugins import Repeat

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
    """Metadata in the folder of this test count as an installation."""
    installs("spec-theirs", METHOD, method="ones = @:Ones")

    result = Run(ToyTarget(recurrent=False), ["ones"]).generate([1, 2], max_tokens=5).result

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
    """With the reason; other commands run."""
    source, reason = BROKEN[way]
    installs("spec-theirs-broken", source, method="broken = @:Ones")
    installs("spec-theirs", METHOD, method="ones = @:Ones")

    with pytest.raises(UsageError) as error:
        Run(ToyTarget(recurrent=False), ["broken"])

    assert error.value.reason.startswith("method 'broken' of spec-theirs-broken 1.0 cannot be imported")
    assert reason in error.value.reason
    assert "pip uninstall spec-theirs-broken" in error.value.hint
    assert Run(ToyTarget(recurrent=False), ["ones"]).generate([1, 2], max_tokens=5).result.stats["drafted"] > 0


def test_a_command_that_cannot_be_imported_does_not_take_the_help_away(installs, capsys):
    """Its line says so."""
    installs("spec-theirs", "raise RuntimeError('no licence')", command="theirs = @:command")

    assert run_command(["--help"]) == 0
    out = capsys.readouterr().out
    assert "RuntimeError: no licence" in out
    assert "generate" in out
    assert run_command(["theirs"]) == 2


@pytest.mark.parametrize("kind", ["method", "control"])
def test_a_name_that_two_distributions_have_is_refused(installs, kind):
    """A name that two packages use is refused: the choice would depend on the order of installation."""
    installs("spec-theirs", METHOD, method="ones = @:Ones")
    installs("spec-theirs-too", METHOD, **{kind: "ones = @:Ones"})

    with pytest.raises(UsageError, match="several plugins") as error:
        Run(ToyTarget(recurrent=False), ["ones"])

    assert "method of spec-theirs 1.0" in error.value.reason
    assert f"{kind} of spec-theirs-too 1.0" in error.value.reason


def test_nobody_takes_the_place_of_a_command(installs, capsys):
    """Not a plugin of this project either."""
    source = "import click\n\n@click.command()\ndef mine(): click.echo('stolen')"
    installs("spec-theirs", source, command="env = @:mine")

    assert run_command(["env"]) == 2
    captured = capsys.readouterr()
    assert "several plugins" in captured.err
    assert "stolen" not in captured.out


LOADERS = {
    "raises": ("def load(location, **options):\n    raise ValueError('wrong magic')", "ValueError: wrong magic"),
    "knows-no-options": ("def load(location):\n    pass", "unexpected keyword argument"),
    "returns-no-target": ("def load(location, **options):\n    return 5", "int has no info, tokenizer, forward"),
    "has-half-a-tokenizer": (
        "from spec_core.testing import ToyTarget\n\n"
        "class Words:\n    vocab_size = 48\n    encode = decode = stream = token_bytes = len\n\n"
        "def load(location, **options):\n    made = ToyTarget()\n    made.tokenizer = Words()\n    return made",
        "its tokenizer Words has no eog, bos, identity, chat_template",
    ),
}


@pytest.mark.parametrize("way", LOADERS)
def test_a_loader_that_fails_is_named_with_its_distribution(installs, way, capsys):
    source, reason = LOADERS[way]
    installs("spec-theirs", source, target="theirs = @:load")
    code = run_command(["generate", "-m", "theirs:here", "-p", "x"])
    err = capsys.readouterr().err

    assert code == 1
    assert "target 'theirs' of spec-theirs 1.0 failed to load 'here': " in err and reason in err
    assert "Traceback" not in err


def test_hooks_are_listed_past_a_plugin_that_cannot_be_imported(installs, capsys):
    """Its line says why."""
    installs("spec-theirs-broken", "raise RuntimeError('no licence')", method="aaa = @:Ones")
    installs("spec-theirs", METHOD, method="ones = @:Ones")

    assert run_command(["plugins", "--hooks"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "cannot be imported: RuntimeError: no licence" in lines["aaa"]
    assert lines["ones"].endswith("draft")


VALIDATED = """
import attrs
from attrs.validators import ge, in_, instance_of, matches_re
from spec_core import hookimpl


@attrs.define(eq=False)
class Strict:
    n: int = attrs.field(default=1, validator=ge(1))
    kind: str = attrs.field(default="a", validator=in_(("a", "b")))
    shape: str = attrs.field(default="x", validator=matches_re("x+"))

    @hookimpl
    def draft(self, step):
        pass
"""


@pytest.mark.parametrize(
    ("setting", "output"),
    [
        ("n=0", "strict.n = '0' does not fit: it must be >= 1\n"),
        ("kind=c", "strict.kind = 'c' does not fit: it must be in ('a', 'b')\n"),
        ("shape=y", "strict.shape = 'y' does not fit: it must match regex 'x+' ('y' doesn't)\n"),
    ],
    ids=str,
)
def test_a_validator_says_what_fits_in_words(installs, capsys, setting, output):
    """The message does not contain attrs' description of the field."""
    installs("spec-theirs", VALIDATED, method="strict = @:Strict")
    code = run_command(["settings", "--method", "strict", "-o", f"strict.{setting}"])
    err = capsys.readouterr().err

    assert code == 2
    assert output in err and "Attribute(" not in err


def test_settings_for_a_plugin_that_is_not_there_are_refused():
    """A typo is not silently nothing; a plugin that takes no part may have settings."""
    with pytest.raises(UsageError, match="settings are given for 'ngrm'") as error:
        Run(ToyTarget(recurrent=False), ["ngram"], plugin_settings={"ngrm": {"n_max": 3}})

    assert error.value.hint.startswith("installed: ngram")
    assert Run(ToyTarget(recurrent=False), [], plugin_settings={"ngram": {"n_max": 3}})


OWNER = """
from spec_core import Compat, Needs, Refusal, hookimpl
from spec_core.testing import ToyRollback


class Knows(ToyRollback):
    pass


class Declines:
    @hookimpl
    def compat(self, target):
        return Compat(refusals=[Refusal("knows no toys", "use another")])


class Owns(Declines):
    @hookimpl
    def compat(self, target):
        return Compat(owns={"recurrent"}, refusals=[Refusal("needs 9 GiB", "ask for -o theirs.n=1")])


class Fails:
    @hookimpl
    def compat(self, target):
        return Compat(owns=target.info.no_such_thing)
"""


@pytest.fixture
def hybrid():
    """Make a run that drafts on a target with recurrent state."""
    return lambda **more: Run(ToyTarget(), [Repeat()], **more)


def test_the_owner_that_knows_the_target_is_found_among_others(installs, hybrid):
    """One declines, one would not fit, one raises when asked, one cannot be imported: none of them is in the way."""
    installs("spec-theirs", OWNER, rollback="a = @:Declines\nb = @:Owns\nc = @:Fails\nd = @:Absent\ne = @:Knows")

    run = hybrid()

    assert [c.name for c in run.plugins if "recurrent" in c.compat.owns] == ["e"]
    assert (
        run.generate([1, 2], max_tokens=6).result.tokens
        == Run(ToyTarget()).generate([1, 2], max_tokens=6).result.tokens
    )


def test_of_several_owners_that_know_the_target_the_user_chooses(installs, hybrid):
    """They are named; asked for by name, each serves."""
    installs("spec-theirs", OWNER, rollback="one = @:Knows\ntwo = @:Knows\nother = @:Declines")

    with pytest.raises(Refused, match="one and two would roll back the target's 'recurrent' state") as error:
        hybrid()

    assert "--rollback NAME" in error.value.hint
    assert hybrid(rollback="two").generate([1], max_tokens=4).result.tokens


def test_where_nobody_knows_the_target_every_reason_is_said(installs, hybrid):
    installs("spec-theirs", OWNER, rollback="a = @:Declines\nb = @:Owns\nc = @:Fails\nd = @:Absent")

    with pytest.raises(Refused, match="no plugin owns the target's 'recurrent' state") as error:
        hybrid()

    for message in (
        "a: knows no toys",
        "b: needs 9 GiB",
        "'c' failed in compat: AttributeError",
        "'d' of spec-theirs 1.0",
    ):
        assert message in error.value.reason
    assert "-o theirs.n=1" in error.value.hint and "use another" not in error.value.hint


def test_an_owner_asked_for_by_name_refuses_a_target_it_does_not_know(installs, hybrid):
    """Before a weight is read."""
    installs("spec-theirs", OWNER, rollback="a = @:Declines\nb = @:Knows")

    with pytest.raises(Refused, match="a: knows no toys"):
        hybrid(rollback="a")
