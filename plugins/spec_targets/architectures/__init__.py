"""Architectures: one file each, and those that other packages register.

An entry point of the group ``spec_targets.architectures`` names a ``Family``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
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

__all__ = ["CLASSES", "NAMES", "TYPES", "Family", "Stored", "find", "named", "names", "plus_one", "stored"]

GROUP = "spec_targets.architectures"
OURS = (
    LLAMA, QWEN2, QWEN3, QWEN3_MOE, GLM4_MOE, QWEN3_NEXT, QWEN35, QWEN35_MOE, PHI3, GEMMA2, GEMMA3, GPT_OSS,
)  # fmt: skip


Key = Callable[[Family], Collection[str]]
"""The names of a family of one kind."""
NAMES: Key = lambda family: (family.name,)
CLASSES: Key = lambda family: family.classes
TYPES: Key = lambda family: family.model_types


def find(key: Key, name: str) -> Family | None:
    """The architecture of this name; None if there is none.

    Other packages are imported only if the name is not one of ours, so a broken one harms no other model.
    Raises UsageError for a name that is registered twice, and if a package that may have it cannot be imported.
    """
    mine = next((family for family in OURS if name in key(family)), None)
    if mine is None:
        return _others(key, name)
    if any(point.name == mine.name for point in points()):
        raise _twice(mine)
    return mine


def _others(key: Key, name: str) -> Family | None:
    found, problems = [], []
    for point in points():
        try:
            family = _loaded(point)
        except UsageError as error:
            problems.append(error)
        else:
            found += [family] if name in key(family) else []
    if len(found) > 1:
        raise _twice(found[0])
    if problems and not found:
        raise problems[0]
    return found[0] if found else None


def _twice(family: Family) -> UsageError:
    return UsageError(
        f"architecture {family.name!r} is registered twice", hint="remove one of the packages that have it"
    )


def names(key: Key) -> list[str]:
    """All names of one kind, of packages that can be imported."""
    known = list(OURS)
    for point in points():
        with suppress(UsageError):
            known.append(_loaded(point))
    return [name for family in known for name in key(family)]


def named(name: str) -> Family:
    """The architecture of a Config, whose file was read. Raises KeyError if there is none."""
    family = next((f for f in OURS if f.name == name), None) or find(NAMES, name)
    if family is None:
        raise KeyError(name)
    return family


def points() -> list[metadata.EntryPoint]:
    """What other packages register, from metadata only."""
    return sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name)


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
