"""The kit's pytest plugin: fixtures, messages, the report; it does not import torch."""

from __future__ import annotations

import subprocess
import sys

from spec_core.testing import ToyRollback, ToyTarget
from spec_core.testing.conformance.promise import Found, promise

pytest_plugins = ["pytester"]

MUTE = """
from spec_core import hookimpl
from spec_core.testing import DrafterConformance

class Mute:
    @hookimpl
    def draft(self, step):
        pass

class TestMute(DrafterConformance):
    def make(self):
        return Mute()
"""


class OnePromise:
    """A kit of two checks."""

    @promise("It is three.")
    def test_it_is_three(self):
        assert self.make() == 3

    @promise("It is four.")
    def test_it_is_four(self):
        if self.make() != 4:
            raise Found(str(self.make()))


def test_collecting_a_test_loads_no_torch(tmp_path):
    """The entry point is imported in every pytest session of an environment with the package."""
    (tmp_path / "test_empty.py").write_text("def test_nothing(): pass\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\n\ndef pytest_unconfigure(config):\n"
        "    print('plugin', config.pluginmanager.hasplugin('spec-core'), 'torch', 'torch' in sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert "plugin True torch False" in done.stdout


def test_fixtures_are_fresh_toys(toy_target, toy_rollback):
    assert (type(toy_target), toy_target.forwards) == (ToyTarget, 0)
    assert type(toy_rollback) is ToyRollback


def test_the_conformance_fixture_reports_every_promise(conformance):
    """With a kit of one check, to save time."""
    outcomes = conformance(OnePromise, lambda: 3)

    assert [(o.check, o.result) for o in outcomes] == [("test_it_is_three", "kept"), ("test_it_is_four", "broken")]
    assert 'promise broken: It is four.\nfound: 3\nalone: pytest -k "' in outcomes[1].found


def test_a_failure_names_the_promise_and_how_to_see_it_alone(pytester):
    """And ``--conformance`` lists it."""
    pytester.makepyfile(MUTE)

    result = pytester.runpytest_inprocess("-p", "no:xdist", "-k", "kits_prompts or empty", "--conformance")

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "promise broken: The method drafts after the kit's prompts.",
            'alone: pytest -k "TestMute and test_it_drafts_after_the_kits_prompts"',
            "TestMute: 1 kept, 1 broken",
            "  broken: The method drafts*",
        ]
    )


def test_where_one_request_fails_nothing_else_is_said_to_be_broken(pytester):
    """After one broken promise the others are not checked."""
    pytester.makepyfile(MUTE.replace("pass", "raise RuntimeError('out of ideas')"))

    result = pytester.runpytest_inprocess("-p", "no:xdist", "-k", "survived or empty", "--conformance")

    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "not checked: A method that drafts nothing proposes nothing: no draft is empty.",
            "found: plugin 'subject' failed in draft*RuntimeError: out of ideas",
            "*, in draft",
            "    raise RuntimeError('out of ideas')",
            'fix first: pytest -k "TestMute and test_one_request_is_survived"',
            "TestMute: 1 broken, 2 not checked",
        ]
    )
