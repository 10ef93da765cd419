"""A distribution of somebody else: found by name, run by the program, held to the kit, with no line of ours changed."""

from __future__ import annotations

import json
import shutil

import pytest
from installed import ROOT, environment

from spec_core import Run, Sampling, load

pytestmark = pytest.mark.slow

SOURCE = ROOT / "tests" / "out_of_tree" / "spec-echo"
PROMPT = "x = [1, 1, 1, 1, "


@pytest.fixture(scope="module")
def theirs(wheel, tmp_path_factory):
    """(environment with the wheel and spec-echo installed, folder of spec-echo's source)."""
    folder = tmp_path_factory.mktemp("theirs")
    source = shutil.copytree(SOURCE, folder / "spec-echo")
    return environment(folder / "env", wheel, source), source


def test_it_is_listed_with_its_own_distribution(theirs, tmp_path):
    """From metadata: name, kind, distribution, version."""
    lines = theirs[0].shell("spec plugins --json", tmp_path).splitlines()

    assert {"name": "echo", "kind": "method", "distribution": "spec-echo", "version": "0.3.1"} in map(json.loads, lines)


def test_it_runs_by_name_and_changes_no_text(theirs, tmp_path):
    """The program takes its name and its settings; the text is plain decoding's; its drafts are counted as its own."""
    plain = Run(load("zoo:pico")).generate(PROMPT, max_tokens=24, sampling=Sampling(temperature=0.5), seed=3).result
    generate = f"spec generate -m zoo:pico -p '{PROMPT}' -n 24 --temperature 0.5 --seed 3 --json"
    echo = json.loads(theirs[0].shell(f"{generate} --method echo -o echo.length=6", tmp_path))

    assert (plain.text, plain.tokens) == (echo["text"], echo["tokens"])
    assert echo["settings"]["echo.length"] == {"value": "6", "origin": "flag"}
    assert list(echo["stats"]["methods"]) == ["echo"]
    assert echo["stats"]["accepted"] > 0


def test_its_own_tests_pass_with_the_kit_of_the_wheel(theirs):
    """Its author inherits the kit and names the plugin; nothing of the repository is on the path."""
    env, source = theirs
    env.shell("pytest -q", source)
