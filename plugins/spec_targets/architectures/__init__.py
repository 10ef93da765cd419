"""Architectures: one file each, and those that other packages register.

An entry point of the group ``spec_targets.architectures`` names a ``Family``.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata

from spec_core.errors import UsageError
from spec_targets.architectures.family import Family, Stored, plus_one, stored
from spec_targets.architectures.gemma import GEMMA2, GEMMA3
from spec_targets.architectures.glm4moe import GLM4_MOE
from spec_targets.architectures.gptoss import GPT_OSS
from spec_targets.architectures.hybrid import QWEN3_NEXT, QWEN35, QWEN35_MOE
from spec_targets.architectures.llama import LLAMA
from spec_targets.architectures.phi3 import PHI3
from spec_targets.architectures.qwen import QWEN2, QWEN3, QWEN3_MOE

__all__ = ["Family", "Stored", "families", "plus_one", "stored"]

GROUP = "spec_targets.architectures"
OURS = (
    LLAMA, QWEN2, QWEN3, QWEN3_MOE, GLM4_MOE, QWEN3_NEXT, QWEN35, QWEN35_MOE, PHI3, GEMMA2, GEMMA3, GPT_OSS,
)  # fmt: skip


def families() -> tuple[Family, ...]:
    """All architectures. Raises UsageError for one that cannot be imported, and for two of one name."""
    others = [_loaded(point) for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name)]
    found: dict[str, Family] = {}
    for family in (*OURS, *others):
        if family.name in found:
            raise UsageError(
                f"architecture {family.name!r} is registered twice", hint="remove one of the packages that have it"
            )
        found[family.name] = family
    return tuple(found.values())


def named(name: str) -> Family:
    """The architecture of a Config, whose file was read. Raises KeyError if there is none."""
    return next((f for f in OURS if f.name == name), None) or {f.name: f for f in families()}[name]


@lru_cache(maxsize=64)
def _loaded(point: metadata.EntryPoint) -> Family:
    try:
        family = point.load()
    except Exception as error:  # importing runs the module, which may raise anything
        raise _broken(point, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise _broken(point, f"is of type {type(family).__name__}, a spec_targets.architectures.Family was needed")
    return family


def _broken(point: metadata.EntryPoint, found: str) -> UsageError:
    package = point.dist.name if point.dist else "?"
    return UsageError(
        f"architecture {point.name!r} of {package} {found}", hint=f"correct it, or remove it: pip uninstall {package}"
    )
