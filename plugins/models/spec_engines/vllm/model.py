"""vLLM's model as plugins see it, and what vLLM gives them; from metadata, without vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from spec_core import TargetInfo, load
from spec_core.errors import UsageError
from spec_core.host import EngineModel, Serves
from spec_core.toolkit import next_token_layer
from spec_engines.vllm import ENGINE

SERVES = Serves(**ENGINE.serves)
WHY = "vLLM multiplies rows in the shapes of a step, and libraries sum each shape in its own order"


def describe(location: str, **facts: Any) -> EngineModel:
    """The model from its metadata. facts: of TargetInfo, as the engine decided them. Raises UsageError."""
    if not Path(location).is_dir():
        raise UsageError(f"{location} is not a directory", hint="download the model and give its directory")
    read = load(f"transformers:{location}", weights=False, device="cpu", dtype="float32")
    info: TargetInfo = attrs.evolve(read.info, trees=False, exact="no", exact_why=WHY, **facts)
    return EngineModel(info, read.tokenizer, next_token_layer=next_token_layer(read))


def names_of(config: dict[str, Any], methods: tuple[str, ...] = ()) -> list[str]:
    """Methods and controller. told: as ``spec_engines.vllm.options`` writes it. Raises UsageError for none."""
    asked = [*(methods or config.get("methods", ())), *([config["control"]] if config.get("control") else [])]
    if not asked:
        raise UsageError("no method was named", hint='give additional_config={"spec": {"methods": [...]}}')
    return asked
