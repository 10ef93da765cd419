"""The architecture of a GGUF file, its sizes and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from spec_core.errors import Unsupported, UsageError, nearest_names
from spec_targets.architectures import BY_DIVISION, BY_NAME, family_of, find_family, list_names
from spec_targets.architectures.config import Config
from spec_targets.architectures.decoder import DIVISORS
from spec_targets.architectures.keys import Keys
from spec_targets.formats.gguf import GgufFile
from spec_targets.formats.gguf_weights import FusedTensors, GgufWeights
from spec_targets.tokenizer.patterns import PATTERNS, Division


def config_of(file: GgufFile) -> Config:
    """The sizes of a file's model. Raises UsageError for missing, wrongly typed or unknown metadata."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise UsageError(
            f"{file.path.name}: it does not name its architecture", hint="give a model, not a vocabulary or adapter"
        )
    family = find_family(BY_NAME, name)
    if family is None:
        hint = f"supported: {nearest_names(name, list_names(BY_NAME))}"
        raise Unsupported(f"{file.path.name}: architecture {name[:60]!r} is not supported", hint=hint)
    return family.gguf(Keys(file, name))


def weights_of(file: GgufFile, config: Config) -> GgufWeights:
    """The tensors of a file's model, by the names that its operations read."""
    family = family_of(config.arch)
    parts = FusedTensors(family.fused, config) if family.fused else None
    return GgufWeights(file, family.renamed, family.interleaved, parts)


def divisors_of(weights: GgufWeights, config: Config) -> Tensor | None:
    """Frequency divisors of llama3 scaling, if the file has them; a wrong shape is refused later."""
    names = (name for name in DIVISORS if weights.shape(name) == (config.rotary_dim // 2,))
    return next(map(weights.load, names), None)


def find_divisions(metadata: Mapping[str, Any]) -> Mapping[str, Division]:
    """Divisions of texts that a package adds for ``tokenizer.ggml.pre`` of a file; none where the name is known."""
    pre = metadata.get("tokenizer.ggml.pre")
    if not isinstance(pre, str) or pre in PATTERNS:
        return {}
    family = find_family(BY_DIVISION, pre)
    return family.divisions if family else {}
