"""Tests of spec-rest: the kit's promises, the same text, and which continuations are drafted."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from spec_rest import Rest

from spec_core import Refused, Run, Sampling, load
from spec_core.testing import DrafterConformance, ToyTarget

CODE = Path(argparse.__file__)


@pytest.fixture(scope="module")
def toy_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of the kit's target, as characters."""
    target, path = ToyTarget(recurrent=False), tmp_path_factory.mktemp("rest") / "corpus.txt"
    texts = [[i, *Run(target).generate([i], max_tokens=20).result.tokens] for i in range(48)]
    path.write_text("".join(map(target.tokenizer.decode, texts)), "utf-8")
    return path


class TestRest(DrafterConformance):
    @pytest.fixture(autouse=True)
    def _file(self, toy_corpus: Path) -> None:
        self.file = toy_corpus

    def make(self) -> Rest:
        return Rest(file=self.file)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(temperature: float) -> None:
    target, sampling = load("zoo:pico"), Sampling(temperature=temperature)
    plain = Run(target).generate("def add(self, name):\n", max_tokens=64, sampling=sampling).result
    drafted = Run(target, [Rest(file=CODE)]).generate("def add(self, name):\n", max_tokens=64, sampling=sampling).result

    assert drafted.tokens == plain.tokens
    assert drafted.stats["accepted"] > 0


def test_the_longest_match_counts_with_everything_that_followed_it(tmp_path: Path) -> None:
    """``ab`` occurs six times; ``xab``, which is longer, once."""
    (tmp_path / "corpus.txt").write_text("ABC ABD XABE ABC ABD ABC", "utf-8")
    method, target = Rest(file=tmp_path / "corpus.txt"), ToyTarget(vocab=60)
    method.load(target)

    def after(text: str) -> Counter[str]:
        ends = method.matches(target.tokenizer.encode(text)[::-1])
        return Counter(target.tokenizer.decode([method.corpus[end]]) for end in ends)

    assert after("ZAB") == {"C": 3, "D": 2, "E": 1}
    assert after("ZXAB") == {"E": 1}
    assert after("AZ") == {}


def test_a_corpus_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere\.txt is not a file"):
        Run(ToyTarget(recurrent=False), [Rest(file=tmp_path / "nowhere.txt")])


@pytest.mark.skipif(not entry_points(group="spec_core.methods", name="rest"), reason="needs pip install -e .")
def test_it_is_compared_with_plain_decoding(tmp_path: Path) -> None:
    command = f"compare -m zoo:pico --method rest={CODE} --limit 1 --repeats 1 -n 16 --out out"
    subprocess.run([sys.executable, "-m", "spec_core", *command.split()], cwd=tmp_path, check=True)
    rows = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))["rows"]

    assert {row["contender"]: row["identical"] for row in rows if row["family"] == "all"} == {"plain": 4, "rest": 4}
