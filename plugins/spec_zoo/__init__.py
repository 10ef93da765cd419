"""Small models that ship with the package: ``zoo:NAME``. Loading one reads nothing from anywhere else.

They were trained from scratch by the scripts in ``training`` and serve to show, not to be useful.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from spec_core.errors import UsageError, nearest

if TYPE_CHECKING:
    from spec_core import Target

HERE = Path(__file__).parent


@attrs.frozen
class Model:
    """A shipped file, what it is for, and the models that know it: {method: zoo name}."""

    file: str
    about: str
    companions: dict[str, str] = attrs.field(factory=dict)


ZOO = {
    "pico": Model("pico.gguf", "dense target, qwen3 architecture", {"draft-model": "zoo:pico-draft"}),
    "pico-draft": Model("pico-draft.gguf", "draft model for pico"),
    "pico-hybrid": Model(
        "pico-hybrid.gguf",
        "hybrid target, qwen35 architecture, with a layer for mtp",
        {"draft-model": "zoo:pico-draft"},
    ),
}
PROMPTS = HERE / "prompts.jsonl"
"""Prompts of four families from held-out text: {"id", "family", "prompt"} per line."""
TASKS = 4000
"""Edit and record tasks among the texts."""


def path(name: str) -> Path:
    """The file of a model. Raises UsageError listing the known names."""
    if name not in ZOO:
        raise UsageError(f"the zoo has no model {name!r}", hint=f"it has: {nearest(name, ZOO)}")
    return HERE / "models" / ZOO[name].file


def texts() -> list[str]:
    """What the models were trained on: files, prose, docstrings and tasks."""
    from spec_zoo.training import data, tokens

    train, _ = data.split()
    prose, _ = data.prose()
    return [*train, *prose, *data.docstrings(train), *tokens.task_texts(train, TASKS, seed=1)]


def load(location: str, **options: Any) -> Target:
    """``zoo:NAME``; options as for ``gguf:``. The target knows its companions and its prompts."""
    from spec_core import load as load_model

    file = path(location)
    extras = {"companions": ZOO[location].companions, "prompts": str(PROMPTS), "texts": texts}
    return load_model(f"gguf:{file}", extras=extras, **options)
