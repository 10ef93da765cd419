"""``--method best``: what it chooses, in which order, what it says, and that it downloads nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import spec_best
import spec_hub.pairs
from spec_best.costs import NotMeasured, costs_of
from spec_best.drafters import own_drafters
from spec_best.expected import ACCEPTANCE, LOOKUP_ACCEPTANCE, LOOKUP_SHARE
from spec_cli.main import run_command as spec
from spec_costs.file import Costs, DraftCost, StepCost
from spec_hub.client import connect_hub
from spec_hub.fetch import fetch_model
from spec_hub.hub_name import parse_name
from spec_hub.pairs import NOT_MEASURED, Pair
from spec_zoo import path as zoo_path

from spec_core import MethodChoice, PluginError, Run, UsageError, load, prepare
from spec_core.assembly.choices import choose_methods
from tests.support.local_hub import LocalHub

PROMPT = "def add(a, b):\n    return"
HEAD = Pair("pico", "o/pico-eagle3", "eagle3", "unknown", "unknown", "https://example.org/pico", NOT_MEASURED)


STEPS = [StepCost(1, 64, 1, 1.0), StepCost(1, 64, 8, 1.1)]
"""A machine on which rows are nearly free."""


@pytest.fixture(autouse=True)
def not_measured(monkeypatch, tmp_path) -> None:
    """No test depends on what a machine takes, or writes where the user's programs do."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "costs"))
    monkeypatch.setattr(spec_best, "costs_of", refuse)


def refuse(info, drafters):
    raise NotMeasured("a test measures nothing")


def with_costs(monkeypatch, **seconds: float) -> None:
    """Drafts of these methods take so long, in plain steps."""
    costs = Costs({}, STEPS, [DraftCost(name.replace("_", "-"), 8, each, 5) for name, each in seconds.items()])
    monkeypatch.setattr(spec_best, "costs_of", lambda info, drafters: (costs, "of a test"))


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
        ("zoo:pico-hybrid", ["auto", "ngram", "mtp", "gdn-rollback"], "mtp, the model's own next-token layer"),
        ("zoo:pico", ["auto", "ngram", "dflash"], "dflash, with zoo:pico-dflash, made for it"),
    ],
)
def test_without_costs_what_belongs_to_the_model_follows_lookup(model, methods, why, cache):
    prepared = prepare(model, "best")

    with prepared.load() as run:
        assert names(run) == methods
    assert prepared.notes == (f"best: ngram and {why}; costs were not measured: a test measures nothing; control auto",)


def test_the_drafter_that_is_expected_to_be_fastest_follows_lookup(monkeypatch, cache):
    with_costs(monkeypatch, dflash=3.0, eagle3=0.2, draft_model=1.0)
    prepared = prepare("zoo:pico", "best")

    with prepared.load() as run:
        assert names(run) == ["auto", "ngram", "eagle3"]
    assert "expected times plain decoding's speed: ngram 1.93" in prepared.notes[0]
    assert "by costs of a test; control auto" in prepared.notes[0]


def test_drafters_that_cost_more_than_they_bring_leave_lookup_alone(monkeypatch, cache):
    with_costs(monkeypatch, dflash=9.0, eagle3=9.0, draft_model=9.0)
    prepared = prepare("zoo:pico", "best")

    with prepared.load() as run:
        assert names(run) == ["auto", "ngram"]
    assert prepared.notes[0].startswith("best: ngram, lookup in the text; expected times")


def test_costs_are_measured_once_and_kept(cache, tmp_path):
    info = load("zoo:pico", weights=False).info
    drafters = [drafter for drafter in own_drafters(info) if drafter.name in ("eagle3", "draft-model")]
    costs, origin = costs_of(info, drafters)
    again, kept = costs_of(info, drafters)

    assert origin.startswith("measured in ") and kept == "measured before"
    assert again == costs
    assert {cost.rows for cost in costs.steps} == {1, 2, 4, 8}
    assert {cost.method for cost in costs.drafting} == {"eagle3", "draft-model"}


def test_a_measurement_that_fails_does_not_end_a_load(cache, monkeypatch):
    monkeypatch.setattr(spec_best, "costs_of", costs_of)
    monkeypatch.setattr("spec_best.costs.measure_costs", lambda *arguments: 1 / 0)

    assert "costs were not measured: ZeroDivisionError: division by zero" in prepare("zoo:pico", "best").notes[0]


def test_large_models_are_not_read_twice(cache, monkeypatch):
    monkeypatch.setattr("spec_best.costs.BYTES_MAX", 1000)
    info = load("zoo:pico", weights=False).info

    with pytest.raises(NotMeasured, match="would be read twice"):
        costs_of(info, own_drafters(info))


def test_a_model_alone_gets_lookup(pico):
    prepared = prepare(pico, "best")

    assert prepared.notes == ("best: ngram, lookup in the text, as no drafter is there; control auto",)
    with prepared.load() as run:
        assert names(run) == ["auto", "ngram"]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_drafter_beside_the_file_is_found_by_its_prefix(pico, kind):
    file = shutil.copy(zoo_path(f"pico-{kind}"), pico.with_name(f"{kind}-pico.gguf"))

    prepared = prepare(pico, "best")

    assert f"best: ngram and {kind}, with {Path(file).name}, which lies in its folder; costs" in prepared.notes[0]
    with prepared.load() as run:
        assert names(run) == ["auto", "ngram", kind]


def test_a_file_with_no_prefix_is_no_drafter(pico):
    shutil.copy(zoo_path("pico-eagle3"), pico.with_name("pico-eagle3.gguf"))

    assert "best: ngram, lookup" in prepare(pico, "best").notes[0]


def test_a_drafter_of_another_kind_or_a_damaged_one_is_refused_with_its_reason(pico):
    shutil.copy(zoo_path("pico-draft"), pico.with_name("dflash-pico.gguf"))
    pico.with_name("eagle3-pico.gguf").write_bytes(b"GGUF and nothing else")

    note = prepare(pico, "best").notes[0]

    assert "best: ngram, lookup" in note
    assert "dflash-pico.gguf does not fit: " in note
    assert "eagle3-pico.gguf does not fit: " in note


def test_the_drafter_nearest_in_name_is_tried_first(pico):
    for name in ("eagle3-other.gguf", "eagle3-pico-Q8_0.gguf", "eagle3-pi.gguf"):
        shutil.copy(zoo_path("pico-eagle3"), pico.with_name(name))

    assert "with eagle3-pico-Q8_0.gguf, which" in prepare(pico, "best").notes[0]


def test_a_published_drafter_is_named_and_never_downloaded(pico, pair, hub: LocalHub):
    hub.add(pair.drafter, **{"head.gguf": zoo_path("pico-eagle3").read_bytes()})

    note = prepare(pico, "best").notes[0]

    assert "best: ngram, lookup" in note
    assert note.endswith("published for it: eagle3 (spec get o/pico-eagle3)")
    assert not hub.requests


def test_a_published_drafter_in_the_cache_is_used_without_the_network(pico, pair, hub: LocalHub):
    hub.add(pair.drafter, **{"head.gguf": zoo_path("pico-eagle3").read_bytes()})
    fetch_model(parse_name(pair.drafter), connect_hub())
    hub.requests.clear()

    prepared = prepare(pico, "best")

    assert "best: ngram and eagle3, with o/pico-eagle3, which is in the hub's cache; costs" in prepared.notes[0]
    with prepared.load() as run:
        assert names(run) == ["auto", "ngram", "eagle3"]
        assert run.generate(PROMPT, max_tokens=30).text == Run(pico).generate(PROMPT, max_tokens=30).text
    assert not hub.requests


def test_without_the_hubs_package_it_still_chooses(pico, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)

    assert "best: ngram, lookup" in prepare(pico, "best").notes[0]


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
    monkeypatch.setattr("spec_best.choose_methods", lambda target, misfit: 1 / 0)
    with pytest.raises(PluginError, match="'best' failed in compat: ZeroDivisionError"):
        prepare("zoo:pico", "best")

    monkeypatch.setattr("spec_best.choose_methods", lambda target, misfit: ["ngram"])
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

    monkeypatch.setattr("spec_best.choose_methods", choose)
    prepared = prepare("zoo:pico", "best")
    with prepared.load() as run:
        assert names(run) == ["ngram"]
    assert prepared.notes == ("it is ngram",)
    assert len(targets) == 1


def test_the_commands_know_it(capsys, cache):
    assert spec(["generate", "-m", "zoo:pico", "--method", "best", "-p", PROMPT, "-n", "8"]) == 0
    best = capsys.readouterr()
    assert "best: ngram and dflash, with zoo:pico-dflash, made for it; " in best.err
    assert spec(["generate", "-m", "zoo:pico", "-p", PROMPT, "-n", "8"]) == 0
    assert capsys.readouterr().out == best.out
    assert spec(["compat", "-m", "zoo:pico", "--method", "best", "--json"]) == 0
    assert [p["name"] for p in json.loads(capsys.readouterr().out)["plugins"]][:3] == ["auto", "ngram", "dflash"]
    assert spec(["settings", "--method", "best"]) == 0
    assert spec(["plugins"]) == 0
    assert "best" in capsys.readouterr().out


def test_the_page_has_the_acceptance_by_which_it_chooses():
    page = (Path(__file__).parents[2] / "docs" / "methods" / "best.md").read_text("utf-8")
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    listed = {name.strip(" `"): float(cell) for names, cell in rows for name in names.split(",")}

    assert listed == ACCEPTANCE
    assert f"{LOOKUP_ACCEPTANCE:.2f}, in {LOOKUP_SHARE} of the steps" in page
