"""DFlash heads against the original implementation, and what they do in a run."""

from __future__ import annotations

import pytest
import torch

from tests.methods.drafted import check_published


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("context", ["ctx20", "ctx33"])
@pytest.mark.parametrize("file", ["model-f32.gguf", "hf"])
@pytest.mark.parametrize("name", ["dflash/qwen3", "dflash/qwen35"])
def test_a_published_head_drafts_what_its_original_drafts(name, file, context, kernels, tmp_path):
    check_published(name, file, context, kernels, tmp_path / "draft.safetensors")
