"""Architectures: one file each, and the ones that other packages register.

An entry point of the group ``spec_targets.architectures`` names a ``Family``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from importlib import metadata

from spec_core.commands import read_entry_points
from spec_core.errors import FOREIGN, UsageError
from spec_targets.architectures.deepseek2 import DEEPSEEK2
from spec_targets.architectures.falcon_h1 import FALCON_H1
from spec_targets.architectures.family import Family
from spec_targets.architectures.gemma import GEMMA2, GEMMA3
from spec_targets.architectures.gemma4 import GEMMA4
from spec_targets.architectures.glm4moe import GLM4_MOE
from spec_targets.architectures.glm5_next import GLM5_NEXT
from spec_targets.architectures.gptoss import GPT_OSS
from spec_targets.architectures.granite_hybrid import GRANITE_HYBRID
from spec_targets.architectures.hybrid import QWEN3_NEXT, QWEN35, QWEN35_MOE
from spec_targets.architectures.kimi_linear import KIMI_LINEAR
from spec_targets.architectures.laguna import LAGUNA
from spec_targets.architectures.lfm2 import LFM2, LFM2_MOE
from spec_targets.architectures.lfm3 import LFM3
from spec_targets.architectures.llama import LLAMA
from spec_targets.architectures.minimax import MINIMAX_M2
from spec_targets.architectures.mistral3 import MISTRAL3
from spec_targets.architectures.muse_glimmer import MUSE_GLIMMER
from spec_targets.architectures.nemotron_h import NEMOTRON_H, NEMOTRON_H_MOE
from spec_targets.architectures.olmo_hybrid import OLMO_HYBRID
from spec_targets.architectures.phi3 import PHI3
from spec_targets.architectures.qwen import QWEN2, QWEN3, QWEN3_MOE
from spec_targets.architectures.qwen3vl import QWEN3_VL
from spec_targets.formats.stored_names import Stored, plus_one, stored_as

__all__ = [
    "BY_CLASS",
    "BY_DIVISION",
    "BY_MODEL_TYPE",
    "BY_NAME",
    "Family",
    "Stored",
    "family_of",
    "find_family",
    "list_names",
    "plus_one",
    "stored_as",
]

GROUP = "spec_targets.architectures"
OURS = (
    LLAMA, MISTRAL3, QWEN2, QWEN3, QWEN3_MOE, GLM4_MOE, QWEN3_NEXT, QWEN35, QWEN35_MOE, PHI3, GEMMA2, GEMMA3, GEMMA4,
    GPT_OSS, LFM2, LFM2_MOE, QWEN3_VL, KIMI_LINEAR, GRANITE_HYBRID, FALCON_H1, NEMOTRON_H, NEMOTRON_H_MOE,
    MINIMAX_M2, DEEPSEEK2, OLMO_HYBRID, MUSE_GLIMMER, LFM3, LAGUNA,
    GLM5_NEXT,
)  # fmt: skip


Key = Callable[[Family], Collection[str]]
"""The names of a family of one kind."""
BY_NAME: Key = lambda family: (family.name,)
BY_CLASS: Key = lambda family: family.classes
BY_MODEL_TYPE: Key = lambda family: family.model_types
BY_DIVISION: Key = lambda family: family.divisions


def find_family(key: Key, name: str) -> Family | None:
    """The architecture of this name; None if there is none.

    Other packages are imported only if the name is not one of ours, so a broken one harms no other model.
    Raises UsageError for a name that is registered twice, and if a package that may have it cannot be imported.
    """
    own = next((family for family in OURS if name in key(family)), None)
    if own is None:
        return _others(key, name)
    if any(point.name == own.name for point in points()):
        raise _twice(own.name, [own])
    return own


def _others(key: Key, name: str) -> Family | None:
    families, problems = [], []
    for point in points():
        try:
            family = _load_family(point)
        except UsageError as error:
            problems.append(error)
        else:
            families += [family] if name in key(family) else []
    if len(families) > 1:
        raise _twice(name, families)
    if problems and not families:
        raise problems[0]
    return families[0] if families else None


def _twice(name: str, families: list[Family]) -> UsageError:
    owners = sorted({repr(family.name) for family in families} - {repr(name)})
    by = f", by the architectures {' and '.join(owners)}" if owners else ""
    return UsageError(f"{name!r} is registered twice{by}", hint="remove one of the packages that have it")


def list_names(key: Key) -> list[str]:
    """List all names of one kind, of packages that can be imported."""
    known = list(OURS)
    for point in points():
        with suppress(UsageError):
            known.append(_load_family(point))
    return [name for family in known for name in key(family)]


def family_of(name: str) -> Family:
    """The architecture of a Config, whose file was read. Raises KeyError if there is none."""
    family = next((f for f in OURS if f.name == name), None) or find_family(BY_NAME, name)
    if family is None:
        raise KeyError(name)
    return family


def points() -> list[metadata.EntryPoint]:
    """Architectures of other packages, from metadata only."""
    return sorted(read_entry_points(group=GROUP), key=lambda point: point.name)


@lru_cache(maxsize=64)
def _load_family(point: metadata.EntryPoint) -> Family:
    try:
        family = point.load()
    except FOREIGN as error:  # importing runs the module, which may raise anything
        raise _registration_error(point, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise _registration_error(
            point, f"is of type {type(family).__name__}, a spec_targets.architectures.Family was needed"
        )
    return family


def _registration_error(point: metadata.EntryPoint, problem: str) -> UsageError:
    package = point.dist.name if point.dist else "?"
    return UsageError(
        f"architecture {point.name!r} of {package} {problem}", hint=f"correct it, or remove it: pip uninstall {package}"
    )
