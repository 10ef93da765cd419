"""``spec check``: the kit on installed plugins."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from spec_cli.main import run_command
from spec_methods.ngram import Ngram

from spec_core import CONTRACT, Compat, hookimpl
from tests.support.small_models import tiny_gguf, tiny_hybrid
from tests.support.toy_plugins import install


@pytest.fixture
def check(capsys, monkeypatch, tmp_path):
    """Run ``spec check`` beside the toy plugins; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    install(monkeypatch)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["check", *arguments])
        return code, *capsys.readouterr()

    return call


def label_of(badge) -> str:
    return ElementTree.parse(badge).getroot().get("aria-label")


def test_a_method_that_keeps_its_promises_gets_a_badge(check, tmp_path):
    code, out, err = check("ngram:n_min=2", "--badge", "ngram.svg")

    assert (code, out) == (0, "")
    assert "method ngram of spec-core" in err and " 0 broken" in err
    kept = err.partition(": ")[2].partition(" ")[0]
    assert label_of(tmp_path / "ngram.svg") == "spec-core contract {}.{}: {} checks".format(*CONTRACT, kept)


def test_a_broken_promise_is_quoted_with_its_finding_and_what_may_be_declared(check, tmp_path, monkeypatch):
    monkeypatch.setattr(Ngram, "compat", hookimpl(lambda self: Compat(drafts={"deterministic"})))
    code, out, _ = check("ngram", "--badge", "ngram.svg")

    assert code == 1
    assert "broken: A rejected draft has no effect on later drafts" in out and "\n  drafts [" in out
    assert 'Compat(learns="length")' in out and "pytest" not in out
    assert label_of(tmp_path / "ngram.svg").endswith("checks failed")


def test_a_badge_with_the_ending_json_is_an_endpoint_of_shields(check, tmp_path):
    """Its schema: https://shields.io/badges/endpoint-badge."""
    code, _, err = check("ngram:n_min=2", "--badge", "ngram.json")
    badge = json.loads((tmp_path / "ngram.json").read_text("utf-8"))

    assert code == 0
    assert (badge["schemaVersion"], badge["label"]) == (1, "spec-core contract {}.{}".format(*CONTRACT))
    assert f" {badge['message'].partition(' ')[0]} promises kept" in err


def test_as_json_it_lists_every_promise(check):
    outcomes = [json.loads(line) for line in check("mute", "--json")[1].splitlines()]

    assert {one["result"] for one in outcomes} == {"kept", "broken", "skipped"}
    assert [one["check"] for one in outcomes if one["result"] == "broken"] == ["test_it_drafts_after_the_kits_prompts"]


@pytest.mark.repeats(2)
@pytest.mark.slow
@pytest.mark.parametrize("plugin", ["rejection", "auto", "gguf:{dense}", "gdn-rollback -m {hybrid}"])
def test_plugins_of_every_kind_can_be_checked(check, plugin):
    code, out, _ = check(*plugin.format(dense=tiny_gguf(), hybrid=tiny_hybrid()).split())

    assert (code, out) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("nobody", "named 'nobody' is installed"),
        ("ngram:nothing=1", "ngram has no setting 'nothing'"),
        ("eagle3", "or name a model that it accepts: -m MODEL"),
        ("gdn-rollback", "or name a model that it accepts: -m MODEL"),
        ("ngram --declare anything=1", "--declare anything=1: unknown"),
        ("ngram --declare tolerance=much", "'much' is no number"),
        ("mute --badge nowhere/at/all.svg", "nowhere/at/all.svg"),
    ],
)
def test_a_mistake_is_one_message(check, arguments, says):
    code, _, err = check(*arguments.split())

    assert code == 2 and says in err and "Traceback" not in err
