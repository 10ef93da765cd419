"""A model that an engine loads from a directory, as plugins see it; from metadata, without the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from spec_core import TargetInfo, load
from spec_core.errors import UsageError
from spec_core.host import EngineModel
from spec_core.toolkit import next_token_layer


def describe_directory(location: str, why: str, **facts: Any) -> EngineModel:
    """The model from its metadata. why: the reason why rows depend on their batch. facts: of TargetInfo, as the engine
    decided them. Raises UsageError.
    """
    if not Path(location).is_dir():
        raise UsageError(f"{location} is not a directory", hint="download the model and give its directory")
    read = load(f"transformers:{location}", weights=False, device="cpu", dtype="float32")
    info: TargetInfo = attrs.evolve(read.info, trees=False, exact="no", exact_why=why, **facts)
    return EngineModel(info, read.tokenizer, next_token_layer=next_token_layer(read))


def names_of(config: dict[str, Any], methods: tuple[str, ...] = ()) -> list[str]:
    """Methods and controller of a configuration; ``methods`` replace its own. Raises UsageError for none."""
    asked = [*(methods or config.get("methods", ())), *([config["control"]] if config.get("control") else [])]
    if not asked:
        raise UsageError("no method was named", hint='name methods: "methods": ["ngram"]')
    return asked
