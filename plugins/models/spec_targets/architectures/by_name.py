"""The architecture of a GGUF file, and its sizes."""

from __future__ import annotations

from spec_core.errors import Unsupported, UsageError, nearest
from spec_targets.architectures import BY_NAME, find_family, names
from spec_targets.architectures.config import Config
from spec_targets.architectures.keys import Keys
from spec_targets.formats.gguf import GgufFile


def config_of(file: GgufFile) -> Config:
    """The sizes of a file's model. Raises UsageError for missing, wrongly typed or unknown metadata."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise UsageError(
            f"{file.path.name}: it does not name its architecture", hint="give a model, not a vocabulary or adapter"
        )
    family = find_family(BY_NAME, name)
    if family is None:
        hint = f"supported: {nearest(name, names(BY_NAME))}"
        raise Unsupported(f"{file.path.name}: architecture {name[:60]!r} is not supported", hint=hint)
    return family.gguf(Keys(file, name))
