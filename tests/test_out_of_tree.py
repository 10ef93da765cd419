"""Plugins of other packages: found by name, run by the program, checked by the kit, without changes here.

They were written from the pages of the documentation alone: a method that looks back, one that reads hidden states
and a file of its own, a rule, a controller, and published methods.
"""

from __future__ import annotations

import json
import shutil

import pytest

from spec_core import Run, Sampling, load
from tests.support.installed import ROOT, environment

pytestmark = pytest.mark.slow

SOURCE = ROOT / "tests" / "out_of_tree"
PACKAGES = sorted(folder.name for folder in SOURCE.iterdir() if (folder / "pyproject.toml").exists())
PROMPT = "x = [1, 1, 1, 1, "
PAPERS = """
import json
from pathlib import Path

from safetensors.torch import save_file
from spec_medusa import train

from spec_core import Run, Sampling, load

METHODS = (
    "rest=corpus.txt",
    "medusa=heads.safetensors",
    "pard:file=zoo:pico-draft,mask=0",
    "sequoia=zoo:pico-draft",
    "lookahead",
    "pass=vectors.safetensors",
)
target = load("zoo:pico")
Path("corpus.txt").write_text("x = [1, 1, 1, 2]\\n" * 2)
vectors = target.tensor("token_embd.weight")[target.tokenizer.encode(" 1,")[-2:]].float().contiguous()
save_file({"vectors": vectors}, "vectors.safetensors")
save_file(train(target, [target.tokenizer.encode("def add(a, b):\\n")], steps=1), "heads.safetensors")
for temperature in (0.0, 0.8):
    for method in ("", *METHODS):
        run = Run(target, [method] if method else [])
        result = run.generate("PROMPT", max_tokens=16, sampling=Sampling(temperature=temperature)).result
        print(json.dumps([method, result.tokens, result.stats["drafted"]]))
"""
"""Prints method, tokens and the number of drafted tokens, of plain decoding first."""


@pytest.fixture(scope="module")
def theirs(wheel, tmp_path_factory):
    """(environment with the wheel and their packages installed, folder of their sources)."""
    folder = tmp_path_factory.mktemp("theirs")
    sources = [shutil.copytree(SOURCE / package, folder / package) for package in PACKAGES]
    shutil.copy(SOURCE / "conftest.py", folder)
    return environment(folder / "env", wheel, *sources), folder


@pytest.mark.release
def test_it_is_listed_with_its_own_distribution(theirs, tmp_path):
    """From metadata: name, kind, distribution, version; its description is that of its source."""
    rows = map(json.loads, theirs[0].shell("spec plugins --json", tmp_path).splitlines())
    echo = next(row for row in rows if row["name"] == "echo")

    assert echo.pop("description")
    assert echo == {"name": "echo", "kind": "method", "distribution": "spec-echo", "version": "0.3.1"}


def test_it_runs_by_name_and_changes_no_text(theirs, tmp_path):
    """The program takes its name and its settings; the text is plain decoding's; its drafts are counted as its own."""
    plain = Run(load("zoo:pico")).generate(PROMPT, max_tokens=24, sampling=Sampling(temperature=0.5), seed=3).result
    generate = f"spec generate -m zoo:pico -p '{PROMPT}' -n 24 --temperature 0.5 --seed 3 --json"
    echo = json.loads(theirs[0].shell(f"{generate} --method echo -o echo.length=6", tmp_path))

    assert (plain.text, plain.tokens) == (echo["text"], echo["tokens"])
    assert echo["settings"]["echo.length"] == {"value": "6", "origin": "flag"}
    assert list(echo["stats"]["methods"]) == ["echo"]
    assert echo["stats"]["accepted"] > 0


@pytest.mark.release
def test_published_methods_change_no_text(theirs, tmp_path):
    """Greedy and sampled, with heads that hardly learned, a small corpus, a draft model that knows no mask,
    and vectors that are embeddings."""
    lines = list(map(json.loads, theirs[0].python(PAPERS.replace("PROMPT", PROMPT), tmp_path).splitlines()))

    for (_, plain, _), *methods in (lines[:7], lines[7:]):
        assert [tokens for _, tokens, _ in methods] == [plain] * 6
        assert min(drafted for _, _, drafted in methods) > 0


@pytest.mark.release
def test_a_method_reads_its_own_file_beside_a_rule_and_a_controller(theirs, tmp_path):
    """Maps are fitted by its author's program, named as NAME=FILE, and draft; all three are found by name."""
    (tmp_path / "texts.txt").write_text((ROOT / "spec_core" / "loop" / "run.py").read_text("utf-8"), "utf-8")
    methods = "--method bandit --method lens=maps.safetensors -o lens.p_min=0 --method ngram"
    out = theirs[0].shell(
        "python -m spec_lens zoo:pico texts.txt maps.safetensors\n"
        f"spec generate -m zoo:pico -p '{PROMPT}' -n 24 --temperature 0.5 {methods} --rule lenient --json",
        tmp_path,
    )
    body = json.loads(out)

    assert body["stats"]["methods"]["lens"]["drafts"] > 0
    assert body["stats"]["lossy"] == "keeps drafts 2 times too likely"


@pytest.mark.release
def test_their_own_tests_pass_with_the_kit_of_the_wheel(theirs):
    """Their tests inherit the kit; nothing of the repository is on the path. All run in one process."""
    env, folder = theirs
    output = env.shell(f"pytest -v --rootdir . {' '.join(PACKAGES)}", folder)

    assert [package for package in PACKAGES if f"{package}/test_" not in output] == []
