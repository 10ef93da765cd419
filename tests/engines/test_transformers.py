"""The target of transformers: conformance, and equality with transformers' own generation."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", "5.20")

from spec_core import load
from spec_core.testing import TargetConformance
from tests.engines.models import directory


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class TestLlama(TargetConformance):
    batch_tolerance = 1e-12

    def make(self):
        return load(f"transformers:{directory('llama')}", dtype="float64", device="cpu")


class TestQwen3(TestLlama):
    def make(self):
        return load(f"transformers:{directory('qwen3')}", dtype="float64", device="cpu")


class TestGemmaWithWindows(TestLlama):
    """Trees are refused: transformers ignores windows under a mask of the caller."""

    def make(self):
        return load(f"transformers:{directory('gemma')}", dtype="float64", device="cpu")


class TestQwen3Next(TestLlama):
    """Its gated delta nets compute in float32 for every dtype, alone in another order than together."""

    batch_tolerance = tolerance = 1e-4

    def make(self):
        return load(f"transformers:{directory('qwen3next')}", dtype="float64", device="cpu")
