"""The comparison with transformers: the same weights on both sides, and figures of equal texts only."""

from __future__ import annotations

import pytest
import torch

from spec_core import load
from tests.targets.tiny import model
from tests.targets.written import metadata, tensors, write


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_the_model_there_has_the_weights_of_the_file(arch, tmp_path):
    """Rows of a llama's q and k have another order in a GGUF file."""
    from benchmarks.against_transformers import in_transformers

    original = model(arch, tie_word_embeddings=True)
    file = write(tmp_path / "model.gguf", arch, metadata(original, arch), tensors(original, arch == "llama"))

    target = in_transformers(load(file)).state_dict()

    assert all(torch.equal(weight, target[name]) for name, weight in original.state_dict().items())


def test_a_prompt_with_another_text_has_no_number():
    """Two prompts of ten tokens: the first took 1 second here and 4 there, the texts of the second differ."""
    from benchmarks.against_transformers import Timed, lines

    shown = lines({"plain, generate": [Timed(1, 4, True), Timed(1, 100, False)], "other": [Timed(1, 9, False)]}, 10)

    assert shown[2:] == [
        "| plain, generate | 1 of 2 | 10.0 | 2.5 | 4.00 | 4.00 |",
        "| other | 0 of 1 |  |  |  |  |",
    ]
