"""Models whose vocabulary writes a space before a whole text, in the three forms of files that are read."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from spec_core import Target, load
from tests.support.golden import golden

FORMS = ("gguf", "tokenizer.json", "tokenizer.model")
FAMILIES = ("mistral", "phi3")


@cache
def model(family: str, form: str) -> Target:
    """A tiny model with weights."""
    folder = golden(family)
    if form == "gguf":
        return load(folder / "model-f32.gguf", dtype="float32", device="cpu")
    if form == "tokenizer.json":
        return load(folder / "hf", dtype="float32", device="cpu")
    return load(_without_json(folder / "hf"), dtype="float32", device="cpu")


def _without_json(folder: Path) -> Path:
    copy = Path(mkdtemp()) / folder.parent.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("tokenizer.json"))
    return copy
