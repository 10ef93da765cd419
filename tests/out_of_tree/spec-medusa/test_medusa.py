"""Tests of spec-medusa: the kit's promises, the same text, and what training brings."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from safetensors.torch import save_file
from spec_medusa import Medusa, train

from spec_core import Refused, Run, Sampling, load
from spec_core.testing import DrafterConformance, ToyTarget

PROMPT = "def load(path):\n"


@pytest.fixture(scope="module")
def toy_heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads that learned texts of the kit's target."""
    target, path = ToyTarget(recurrent=False), tmp_path_factory.mktemp("medusa") / "toy.safetensors"
    texts = [[i, *Run(target).generate([i], max_tokens=60).result.tokens] for i in range(24)]
    save_file(train(target, texts), path)
    return path


class TestMedusa(DrafterConformance):
    @pytest.fixture(autouse=True)
    def _file(self, toy_heads: Path) -> None:
        self.file = toy_heads

    def make(self) -> Medusa:
        return Medusa(file=self.file)


def write_heads(path: Path, steps: int) -> Path:
    """Heads for the zoo's model that learned 4,096 tokens of Python, which takes seconds."""
    target = load("zoo:pico")
    assert target.tokenizer is not None
    ids = target.tokenizer.encode(Path(argparse.__file__).read_text("utf-8"))
    save_file(train(target, [ids[i : i + 256] for i in range(0, 4096, 256)], steps=steps), path)
    return path


@pytest.fixture(scope="module")
def pico_heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_heads(tmp_path_factory.mktemp("medusa") / "pico.safetensors", steps=100)


@pytest.mark.repeats(1)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(pico_heads: Path, temperature: float) -> None:
    target, sampling = load("zoo:pico"), Sampling(temperature=temperature)
    plain = Run(target).generate(PROMPT, max_tokens=48, sampling=sampling).result
    drafted = Run(target, [Medusa(file=pico_heads)]).generate(PROMPT, max_tokens=48, sampling=sampling).result

    assert drafted.tokens == plain.tokens
    assert drafted.stats["accepted"] > 0


def test_training_brings_accepted_tokens(pico_heads: Path, tmp_path: Path) -> None:
    """Against heads that are still the target's own output, on a text that neither learned."""

    def count_accepted(file: Path) -> int:
        run = Run(load("zoo:pico"), [Medusa(file=file)])
        return int(run.generate(PROMPT, max_tokens=48).result.stats["accepted"])

    assert count_accepted(pico_heads) > count_accepted(write_heads(tmp_path / "new.safetensors", steps=0))


def test_heads_of_another_target_are_refused(toy_heads: Path) -> None:
    with pytest.raises(Refused, match=r"output is \[3, 48, 12\], .* has 48 x 16"):
        Run(ToyTarget(width=16, recurrent=False), [Medusa(file=toy_heads)])


@pytest.mark.skipif(not entry_points(group="spec_core.methods", name="medusa"), reason="needs pip install -e .")
def test_it_is_compared_with_plain_decoding(pico_heads: Path) -> None:
    command = f"compare -m zoo:pico --method medusa={pico_heads} --limit 1 --repeats 1 -n 16 --out out"
    subprocess.run([sys.executable, "-m", "spec_core", *command.split()], cwd=pico_heads.parent, check=True)
    rows = json.loads((pico_heads.parent / "out" / "summary.json").read_text("utf-8"))["rows"]

    assert {row["contender"]: row["identical"] for row in rows if row["family"] == "all"} == {"plain": 4, "medusa": 4}
