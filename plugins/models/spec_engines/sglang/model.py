"""SGLang's model as plugins see it, and what SGLang gives them; from metadata, without SGLang."""

from __future__ import annotations

from typing import Any

from spec_core.host import EngineModel, Serves, check_methods
from spec_engines.hosted.model import describe_directory, names_of
from spec_engines.sglang import ENGINE

SERVES = Serves(**ENGINE.serves)
WHY = "SGLang multiplies rows in the shapes of a step, and libraries sum each shape in its own order"


def describe_model(location: str, **facts: Any) -> EngineModel:
    """The model from its metadata. facts: of TargetInfo, as the engine decided them. Raises UsageError."""
    return describe_directory(location, WHY, **facts)


def check_location(location: str, spec: dict[str, Any]) -> list[Any]:
    """The plugins that a configuration names, from metadata alone. Raises UsageError, Refused."""
    return check_methods(describe_model(location), names_of(spec), SERVES, spec.get("plugins"))
