"""``--method best``: what it chooses, in which order, what it says, and that it downloads nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import spec_hub.pairs
from spec_cli.main import run as spec
from spec_hub.client import connect
from spec_hub.fetch import fetch
from spec_hub.hub_name import parse_name
from spec_hub.pairs import NOT_MEASURED, Pair
from spec_zoo import path as zoo_path

from spec_core import MethodChoice, PluginError, Run, UsageError, load, prepare
from spec_core.assembly.choices import choose_methods
from tests.support.local_hub import LocalHub

PROMPT = "def add(a, b):\n    return"
HEAD = Pair("pico", "o/pico-eagle3", "eagle3", "unknown", "unknown", "https://example.org/pico", NOT_MEASURED)


@pytest.fixture
def pico(tmp_path: Path, cache: Path) -> Path:
    """pico in a folder of its own, without the drafters that the zoo has for it."""
    return Path(shutil.copy(zoo_path("pico"), tmp_path / "pico-Q8_0.gguf"))


@pytest.fixture
def pair(monkeypatch) -> Pair:
    """A table of one pair: a head for pico."""
    monkeypatch.setattr(spec_hub.pairs, "pairs", lambda: (HEAD,))
    return HEAD


def names(run: Run) -> list[str]:
    return [plugin.name for plugin in run.plugins if plugin.name != "target"]


@pytest.mark.parametrize(
    ("model", "methods", "why"),
    [
        ("zoo:pico-hybrid", ["auto", "mtp", "gdn-rollback"], "mtp, the model's own next-token layer"),
        ("zoo:pico", ["auto", "dflash"], "dflash, with zoo:pico-dflash, made for it"),
    ],
)
def test_what_belongs_to_the_model_comes_first(model, methods, why, cache):
    prepared = prepare(model, "best")

    with prepared.load() as run:
        assert names(run) == methods
    assert prepared.notes == (f"best: {why}; control auto",)


def test_a_model_alone_gets_lookup(pico):
    prepared = prepare(pico, "best")

    assert prepared.notes == ("best: suffix and ngram, lookup in the text, as no drafter is there; control auto",)
    with prepared.load() as run:
        assert names(run) == ["auto", "suffix", "ngram"]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_drafter_beside_the_file_is_found_by_its_prefix(pico, kind):
    file = shutil.copy(zoo_path(f"pico-{kind}"), pico.with_name(f"{kind}-pico.gguf"))

    prepared = prepare(pico, "best")

    assert f"best: {kind}, with {Path(file).name}, which lies beside it; control auto" in prepared.notes[0]
    with prepared.load() as run:
        assert names(run) == ["auto", kind]


def test_a_file_with_no_prefix_is_no_drafter(pico):
    shutil.copy(zoo_path("pico-eagle3"), pico.with_name("pico-eagle3.gguf"))

    assert "best: suffix and ngram" in prepare(pico, "best").notes[0]


def test_a_drafter_of_another_kind_or_a_damaged_one_is_refused_with_its_reason(pico):
    shutil.copy(zoo_path("pico-draft"), pico.with_name("dflash-pico.gguf"))
    pico.with_name("eagle3-pico.gguf").write_bytes(b"GGUF and nothing else")

    note = prepare(pico, "best").notes[0]

    assert "best: suffix and ngram" in note
    assert "dflash-pico.gguf does not fit: " in note
    assert "eagle3-pico.gguf does not fit: " in note


def test_the_drafter_nearest_in_name_is_tried_first(pico):
    for name in ("eagle3-other.gguf", "eagle3-pico-Q8_0.gguf", "eagle3-pi.gguf"):
        shutil.copy(zoo_path("pico-eagle3"), pico.with_name(name))

    assert "with eagle3-pico-Q8_0.gguf, which" in prepare(pico, "best").notes[0]


def test_a_published_drafter_is_named_and_never_downloaded(pico, pair, hub: LocalHub):
    hub.add(pair.drafter, **{"head.gguf": zoo_path("pico-eagle3").read_bytes()})

    note = prepare(pico, "best").notes[0]

    assert "best: suffix and ngram" in note
    assert note.endswith("published for it: eagle3 (spec get o/pico-eagle3)")
    assert not hub.requests


def test_a_published_drafter_in_the_cache_is_used_without_the_network(pico, pair, hub: LocalHub):
    hub.add(pair.drafter, **{"head.gguf": zoo_path("pico-eagle3").read_bytes()})
    fetch(parse_name(pair.drafter), connect())
    hub.requests.clear()

    prepared = prepare(pico, "best")

    assert prepared.notes == ("best: eagle3, with o/pico-eagle3, which is in the hub's cache; control auto",)
    with prepared.load() as run:
        assert names(run) == ["auto", "eagle3"]
        assert run.generate(PROMPT, max_tokens=30).text == Run(pico).generate(PROMPT, max_tokens=30).text
    assert not hub.requests


def test_without_the_hubs_package_it_still_chooses(pico, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)

    assert "best: suffix and ngram" in prepare(pico, "best").notes[0]


def test_a_controller_of_the_user_is_kept(cache):
    target = load("zoo:pico", weights=False)

    assert choose_methods(target, ["best"], {}).control == "auto"
    assert choose_methods(target, ["best"], {}, "fixed").control == "auto"
    assert choose_methods(target, ["best"], {}, "mine").control == "mine"
    assert choose_methods(target, ["ngram"], {}, "fixed").control == "fixed"


def test_it_is_one_of_several_methods(cache):
    with Run("zoo:pico", ["best+ngram"]) as run:
        assert names(run) == ["auto", "dflash", "ngram"]


def test_a_misspelt_name_is_told_of_it(cache):
    with pytest.raises(UsageError) as error:
        prepare("zoo:pico", "bst")
    assert error.value.hint.startswith("installed: best, ")


def test_it_has_no_settings(cache):
    with pytest.raises(UsageError, match="best stands for methods and has no settings"):
        prepare("zoo:pico", "best:draft_max=2")


def test_a_choice_that_fails_names_its_package(monkeypatch, cache):
    monkeypatch.setattr("spec_best.choose", lambda target, misfit: 1 / 0)
    with pytest.raises(PluginError, match="'best' failed in compat: ZeroDivisionError"):
        prepare("zoo:pico", "best")

    monkeypatch.setattr("spec_best.choose", lambda target, misfit: ["ngram"])
    with pytest.raises(PluginError, match="a MethodChoice is needed"):
        prepare("zoo:pico", "best")


def test_a_choice_is_asked_once_for_a_run(monkeypatch, cache):
    targets = []

    def choose(target, misfit):
        targets.append(target.info.name)
        assert misfit("ngram") is None
        assert "no NextN layer" in misfit("mtp")
        assert "no method" in misfit("absent")
        return MethodChoice(["ngram"], note="it is ngram")

    monkeypatch.setattr("spec_best.choose", choose)
    prepared = prepare("zoo:pico", "best")
    with prepared.load() as run:
        assert names(run) == ["ngram"]
    assert prepared.notes == ("it is ngram",)
    assert len(targets) == 1


def test_the_commands_know_it(capsys, cache):
    assert spec(["generate", "-m", "zoo:pico", "--method", "best", "-p", PROMPT, "-n", "8"]) == 0
    best = capsys.readouterr()
    assert "best: dflash, with zoo:pico-dflash, made for it; control auto" in best.err
    assert spec(["generate", "-m", "zoo:pico", "-p", PROMPT, "-n", "8"]) == 0
    assert capsys.readouterr().out == best.out
    assert spec(["compat", "-m", "zoo:pico", "--method", "best", "--json"]) == 0
    assert [p["name"] for p in json.loads(capsys.readouterr().out)["plugins"]][:2] == ["auto", "dflash"]
    assert spec(["settings", "--method", "best"]) == 0
    assert spec(["plugins"]) == 0
    assert "best" in capsys.readouterr().out
