"""Tests of spec-pard: the kit's promises, the same text, and that one forward gives all tokens of a draft."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import spec_pard
from spec_pard import Pard

from spec_core import Refused, Run, Sampling, load
from spec_core.testing import DrafterConformance, ToyTarget

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n"


class TestPard(DrafterConformance):
    """Beside a toy draft model with weights of its own."""

    @pytest.fixture(autouse=True)
    def _draft_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spec_pard, "load", toy)

    def make(self) -> Pard:
        return Pard(file="toy", mask=47)


def toy(file: str, **options: Any) -> ToyTarget:
    return ToyTarget(seed=1, recurrent=False)


def pico() -> tuple[str, Pard]:
    return "pard", Pard(file="zoo:pico-draft", mask=0, p_min=0.0)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(temperature: float) -> None:
    target, sampling = load("zoo:pico"), Sampling(temperature=temperature)
    plain = Run(target).generate(PROMPT, max_tokens=32, sampling=sampling).result
    drafted = Run(target, [pico()]).generate(PROMPT, max_tokens=32, sampling=sampling).result

    assert drafted.tokens == plain.tokens
    assert drafted.stats["accepted"] > 0


def test_one_forward_gives_all_tokens_of_a_draft() -> None:
    run = Run(load("zoo:pico"), [pico()])
    drafts: list[tuple[int, ...]] = []
    run.observe(lambda step: drafts.extend(part.draft.ids for part in step.parts if part.draft))
    assert run.generate(PROMPT, max_tokens=24).result.stats["drafts"] == len(drafts)

    assert run.stats.report()["forwards"]["pard"] == len(drafts)
    assert max(map(len, drafts)) == 8


def test_the_first_token_is_the_draft_models_own_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target drafts for itself: with one token a draft, no mask is read and every draft is right."""
    monkeypatch.setattr(spec_pard, "load", lambda file, **options: ToyTarget(recurrent=False))
    stats = (
        Run(ToyTarget(recurrent=False), [Pard("toy", mask=0, draft_max=1)]).generate([3, 1], max_tokens=40).result.stats
    )

    assert stats["drafted"] == stats["accepted"] > 0


def test_a_mask_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(Refused, match=r"mask is 3072, .* has 3072 tokens"):
        Run(load("zoo:pico"), [Pard(file="zoo:pico-draft", mask=3072)])


@pytest.mark.skipif(not entry_points(group="spec_core.methods", name="pard"), reason="needs pip install -e .")
def test_it_is_compared_with_plain_decoding(tmp_path: Path) -> None:
    command = "compare -m zoo:pico --method pard:file=zoo:pico-draft,mask=0 --limit 1 --repeats 1 -n 16 --out out"
    subprocess.run([sys.executable, "-m", "spec_core", *command.split()], cwd=tmp_path, check=True)
    rows = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))["rows"]

    assert {(row["contender"][:4], row["identical"]) for row in rows if row["family"] == "all"} == {
        ("plai", 4),
        ("pard", 4),
    }
