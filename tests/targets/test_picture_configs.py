"""Configs of vision parts that transformers refuse: an error that names the file, at the start of a server."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("transformers", reason="needs the extra vision")

from spec_targets.architectures.positions import scaling_of

from spec_core import UsageError, load
from spec_core.errors import LoadError, SpecError
from tests.support.golden import golden


def change(folder, name, **fields):
    """Set fields of a JSON file; a dict changes those within."""
    file = folder / name
    content = json.loads(file.read_text())
    for key, value in fields.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    file.write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    """A directory of a model that reads pictures."""
    return shutil.copytree(golden("vision-qwen3vl") / "hf", tmp_path / "model")


@pytest.mark.parametrize(
    "fields",
    [
        {"depth": "x"}, {"hidden_size": "x"}, {"num_heads": None}, {"patch_size": []}, {"in_channels": {}},
        {"deepstack_visual_indexes": 7}, {"hidden_act": "unknown"}, {"num_heads": 0}, {"hidden_size": -1},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_vision_config_is_an_error_that_names_the_file(folder, fields):
    """TypeError, AttributeError, and errors of transformers' own."""
    change(folder, "config.json", vision_config=fields)

    with pytest.raises(SpecError) as refused:
        load(str(folder)).image_encoder.load()
    assert "config.json" in refused.value.reason and str(folder.name) in refused.value.reason


@pytest.mark.parametrize(
    "fields", [{"size": 7}, {"patch_size": "x"}, {"image_processor_type": "Nothing"}, {"image_mean": {}}], ids=str
)
def test_a_damaged_processor_is_an_error_that_names_the_file(folder, fields):
    """Where it is read, or where it reads a picture."""
    change(folder, "preprocessor_config.json", **{k: v if v != {} else None for k, v in fields.items()})
    encoder = load(str(folder)).image_encoder
    try:
        encoder.load()
    except LoadError as error:
        assert "preprocessor_config.json" in error.reason
    else:
        with pytest.raises(SpecError, match="the model cannot read"):
            encoder.encode_prompt("a", [picture()])


def picture():
    from PIL import Image

    return Image.new("RGB", (40, 30), "red")


@pytest.mark.parametrize("share", [1.0001, 7, 1e9])
def test_a_share_of_rotation_above_one_names_its_field(share):
    """It was an error of torch without a word about the field."""
    raw = {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": share, "rope_theta": 1e4}}

    with pytest.raises(UsageError, match="partial_rotary_factor"):
        scaling_of(raw, "model")
    assert scaling_of({"rope_parameters": {**raw["rope_parameters"], "partial_rotary_factor": 0.5}}, "m").factor == 0.5
