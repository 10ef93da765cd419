"""``spec train`` on the families with windows: the head loads, drafts, and leaves the text as it is.

Ten minutes on a trained model: tests/campaigns/family_heads.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from spec_cli import main as cli

from spec_core import Request, Run, Sampling, load
from tests.support.family_models import FAMILIES, tiny_family
from tests.targets.gate import finish_checked
from tests.targets.random_families import lacking

SMALL = ["--steps", "3", "--length", "40", "--batch", "2", "--answer", "12", "--held-out", "2", "--threads", "1"]
KINDS = {"eagle3": ["--depth", "2"], "dflash": ["--block", "4", "--layers", "1"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "texts.jsonl"
    lines = [{"text": f"def add_{i}(a, b):\n    return a + b + {i}\n" * 4} for i in range(8)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def requests(temperature: float) -> list[Request]:
    sampling = Sampling(temperature=temperature)
    prompts = [[(7 * i + j * j) % 290 for j in range(4 + 5 * i)] for i in range(4)]
    return [Request(p, max_tokens=16, ignore_eos=True, seed=i, sampling=sampling) for i, p in enumerate(prompts)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_for_a_family_is_lossless(kind, family, data, tmp_path):
    if lacking(family):
        pytest.skip(f"this transformers has no classes of {family}")
    torch.set_num_threads(1)
    model, out = tiny_family(family, tmp_path / "model"), tmp_path / "head.gguf"
    words = ["train", kind, "-m", str(model), "--data", str(data), "--out", str(out), *SMALL, *KINDS[kind]]
    assert cli.run_command(words) == 0
    target = load(model)
    run = Run(target, [(kind, {"file": str(out), "p_min": 0.0, "draft_max": 3})], max_sequences=4)

    for temperature in (0.0, 0.8):
        sent = requests(temperature)
        plain = [Run(target).generate(request).result.tokens for request in sent]
        together = finish_checked(run, sent)
        assert [run.generate(request).result.tokens for request in sent] == plain
        assert [result.tokens for result in together] == plain
        assert sum(result.stats["drafted"] for result in together) > 0
