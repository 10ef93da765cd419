"""Parts of a directory that are no text: they are not read, and the user is told."""

from __future__ import annotations

import json
import shutil

import pytest

from spec_core import load
from tests.support.assistants import tiny_gemma4


@pytest.mark.parametrize(
    ("parts", "note"),
    [
        ({"vision_config": {"model_type": "tower"}}, "text only: its vision parts are not read"),
        ({"vision_config": {}, "audio_config": {}}, "text only: its vision and audio parts are not read"),
        ({"vision_config": None}, None),
    ],
)
def test_a_model_with_other_parts_says_that_they_are_not_read(parts, note, tmp_path):
    shutil.copytree(tiny_gemma4(), tmp_path / "model")
    text = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    nested = {"architectures": ["Gemma4ForConditionalGeneration"], "text_config": text, **parts}
    (tmp_path / "model" / "config.json").write_text(json.dumps(nested), "utf-8")

    target = load(tmp_path / "model", weights=False)

    assert target.compat().notes == (() if note is None else (note,))
