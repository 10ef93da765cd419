"""Descriptions of architectures: the tensors that they read, and what is refused."""

from __future__ import annotations

import attrs
import pytest
from spec_kernels.model.source import Recorder
from spec_targets.architectures import OURS
from spec_targets.runtime.decoder import decoder
from spec_targets.runtime.weights import check, expected

from spec_core import UsageError, load
from tests.support.golden import golden

FILES = [f"{family.name}/model-f32.gguf" for family in OURS]


def bare(name: str):
    folder, _, file = name.rpartition("/")
    return load(golden(folder) / file, weights=False)


@pytest.mark.parametrize("name", FILES)
def test_a_description_reads_every_tensor_of_a_file(name):
    target = bare(name)
    trunk = {f"blk.{i}." for i in range(target.config.layers)}
    stored = {n for n in target.weights.names() if not n.startswith("blk.") or n[: n.index(".", 4) + 1] in trunk}

    assert set(expected(target.config, target.weights)) == stored


@pytest.mark.parametrize("name", FILES)
def test_sizes_that_a_file_does_not_have_are_refused_before_memory_is_taken(name):
    """Lists of rows of 8 million heads would take gigabytes."""
    target = bare(name)
    config = attrs.evolve(target.config, heads=1 << 23, kv_heads=1 << 23, head=1024, rotary_dim=1024, recurrent=())

    with pytest.raises(UsageError, match=r"has shape \[|is missing"):
        check(config, target.weights)


def test_a_recorder_has_values_of_the_shape_that_is_wanted():
    target = bare("qwen2/model-f32.gguf")
    recorder = Recorder(target.weights)
    decoder(target.config, recorder, target.weights.interleaved)

    assert recorder.wanted == {name: target.weights.shape(name) for name in recorder.wanted}
    assert tuple(recorder.load("blk.0.attn_q.bias").shape) == target.weights.shape("blk.0.attn_q.bias")
