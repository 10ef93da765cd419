"""vLLM's model as plugins see it, and what vLLM gives them; from metadata, without vLLM."""

from __future__ import annotations

from typing import Any

from spec_core.host import EngineModel, Serves
from spec_engines.hosted.model import describe_directory, names_of
from spec_engines.vllm import ENGINE

__all__ = ["SERVES", "describe_model", "names_of"]
SERVES = Serves(**ENGINE.serves)
WHY = "vLLM multiplies rows in the shapes of a step, and libraries sum each shape in its own order"


def describe_model(location: str, **facts: Any) -> EngineModel:
    """The model from its metadata. facts: of TargetInfo, as the engine decided them. Raises UsageError."""
    return describe_directory(location, WHY, **facts)
