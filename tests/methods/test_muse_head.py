"""Muse Glimmer's published kind of drafter with its target, in a run."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from spec_cli.draft import drafted_by

from spec_core import Run, load
from tests.support.golden import golden


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("file", ["hf", "model-f32.gguf"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
def test_the_head_drafts_on_its_target_as_its_trainer_does(file, kernels, context):
    torch.set_num_threads(1)
    expected = load_file(golden("heads-2026/muse-dflash") / "golden.safetensors")
    tokens = [*expected[f"{context}.tokens"].tolist(), int(expected[f"{context}.id_last"])]
    target = load(golden("muse_glimmer") / file, cache_dtype="float32", kernels=kernels)
    head = {"file": str(golden("heads-2026/muse-dflash") / "hf"), "p_min": 0.0}
    draft_tokens = expected[f"{context}.draft_tokens"].tolist()

    assert (
        drafted_by(Run(target, [("dflash", head)], draft_max=len(draft_tokens)), tokens, len(draft_tokens))[0]
        == draft_tokens
    )
