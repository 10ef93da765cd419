"""Changed files of models that must be refused by name: GGUF with other metadata, and folders with other options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spec_core import UsageError, load
from tests.targets.containers import Model, open_model, pack_typed

Value = tuple[str, Any]
"""A type of metadata, and a value of it."""
ABSENT = object()
"""In place of an option that is left out."""


def check_refused(path: Path, message: str, readings: tuple[bool, ...] = (False, True)) -> UsageError:
    """Assert that a model is refused by this message, with a hint. readings: without weights, and with them."""
    for weights in readings:
        with pytest.raises(UsageError, match=message) as refused:
            load(path, weights=weights)
        assert refused.value.hint
    return refused.value


def write_changed(file: Path, folder: Path, change: Callable[[Model], object]) -> Path:
    """A copy of a GGUF file, changed."""
    changed = open_model(file).copy()
    change(changed)
    (folder / "m.gguf").write_bytes(changed.bytes())
    return folder / "m.gguf"


def check_keys(file: Path, arch: str, values: Mapping[str, Value], message: str, folder: Path) -> None:
    """Assert that a file with other metadata of its architecture is refused, unread and read."""
    pairs = {f"{arch}.{key}": pack_typed(*value) for key, value in values.items()}
    check_refused(write_changed(file, folder, lambda model: model.pairs.update(pairs)), message)


def check_missing(file: Path, key: str, message: str, folder: Path) -> None:
    """Assert that a file without one of its metadata is refused, unread."""
    check_refused(write_changed(file, folder, lambda model: model.pairs.pop(key)), message, (False,))


def change_options(directory: Path, folder: Path, changes: Mapping[str, Any], part: str = "") -> Path:
    """The directory with other options of its model, or of a part of it whose name has dots for levels."""
    for file in directory.iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((directory / "config.json").read_text("utf-8"))
    own = config
    for name in filter(None, part.split(".")):
        own = own[name]
    own |= changes
    for name in [name for name, value in changes.items() if value is ABSENT]:
        del own[name]
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder
