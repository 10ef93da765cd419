"""Golden logits of every family on GPU kernels: one that they run and compute wrong, or refuse unsaid, fails here.

One token of each; ``tests/campaigns/gpu_models.py`` has the longer prompts.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton", reason="triton is not installed")

from spec_core import load
from spec_core.errors import UsageError
from tests.support.golden import GOLDEN, golden
from tests.targets.drive import fresh

OPTIONS = {"kernels": "gpu", "device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32"}
FLOORS = "rounding_floor", "rotary_floor"


def families() -> list[str]:
    """Names of the folders that hold a model and its logits."""
    return sorted(path.name for path in GOLDEN.glob("*") if model_of(path).exists() and has_logits(path))


def model_of(folder: Path) -> Path:
    """The model's file, or its directory where there is none."""
    file = folder / "model-f32.gguf"
    return file if file.exists() else folder / "hf"


def has_logits(folder: Path) -> bool:
    """Whether the folder has a bar for the logits of one token."""
    file = folder / "golden.json"
    facts = json.loads(file.read_text()) if file.exists() else {}
    return any("logits_1" in facts.get(floor, ()) for floor in FLOORS)


@pytest.mark.parametrize("family", families())
def test_logits(family):
    folder = golden(family)
    try:
        target = load(model_of(folder), **OPTIONS)
    except UsageError as error:
        if "architecture" in str(error) and "is not supported" in str(error):
            pytest.skip(f"{family} is not read: {error}")
        raise
    tensors, facts = load_file(folder / "golden.safetensors"), json.loads((folder / "golden.json").read_text())
    bar = 4 * max(facts[floor].get("logits_1", 0) for floor in FLOORS if floor in facts)
    names = [name for name in tensors if name.rpartition(".")[2] == "logits_1"]
    rows = fresh(target, tensors["prompt_1"].tolist()).logits.cpu()

    assert names
    assert min((tensors[name] - rows).abs().max() for name in names) <= bar
    assert target.info.exact == "rows"
