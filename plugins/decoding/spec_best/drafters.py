"""Where drafters for a model are looked for: with the model, in its folder, and in the hub's cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import attrs
from spec_hub.cache import find_cached
from spec_hub.hub_name import HubName
from spec_hub.pairs import published_pairs, target_names

from spec_core import TargetInfo

PREFERENCE = ("dspark", "dspine", "lilicorr", "dflash2", "dflash", "assistant", "mtp", "eagle3", "draft-model")
"""Methods by the forwards of a draft: one of a head for all positions, then one of a layer for each, then a model's."""
PREFIXES = {
    "mtp-": ("mtp",),
    "eagle3-": ("eagle3",),
    "dflash-": ("dflash", "dflash2"),
    "dspark-": ("dspark",),
    "gemma4-assistant": ("assistant",),
}
"""Beginnings of file names by which llama.cpp finds drafters, and the methods that may read such a file."""
FILES_MAX = 64
"""Files in a model's folder that are looked at."""


@attrs.frozen
class Drafter:
    """A method with its file, empty for a layer of the model. title: for the user. where: what it is, and its place."""

    name: str
    file: str
    title: str
    where: str

    @property
    def method(self) -> str | tuple[str, dict[str, str]]:
        return (self.name, {"file": self.file}) if self.file else self.name


def own_layer() -> Drafter:
    """The model's own next-token layer."""
    return Drafter("mtp", "", "its next-token layer", "the model's own next-token layer")


def own_drafters(info: TargetInfo) -> list[Drafter]:
    """Drafters that the target itself names."""
    names = sorted(info.companions, key=preference)
    return [
        Drafter(name, info.companions[name], info.companions[name], f"with {info.companions[name]}, made for it")
        for name in names
    ]


def drafters_beside(info: TargetInfo) -> Iterator[Drafter]:
    """Drafters in the folder of the target's file, nearest in name first."""
    file = Path(info.file)
    if not info.file or not file.parent.is_dir():
        return
    paths = [path for path in sorted(file.parent.iterdir()) if path != file and _is_model(path)]
    by_name = sorted(paths, key=lambda path: -_likeness(path.name, file.name))
    for path in by_name[:FILES_MAX]:
        for name in _methods_of(path.name):
            yield Drafter(name, str(path), path.name, f"with {path.name}, which lies in its folder")


def drafters_in_cache(info: TargetInfo) -> Iterator[Drafter]:
    """Published drafters that were downloaded before, in the order of the table."""
    for pair in published_pairs(target_names(info.name, info.file)):
        if path := find_cached(HubName(pair.drafter)):
            yield Drafter(pair.kind, str(path), pair.drafter, f"with {pair.drafter}, which is in the hub's cache")


def preference(name: str) -> tuple[int, str]:
    """Sort key of a method where costs are not known."""
    return PREFERENCE.index(name) if name in PREFERENCE else len(PREFERENCE), name


def _is_model(path: Path) -> bool:
    return path.suffix == ".gguf" or (path / "config.json").is_file()


def _methods_of(name: str) -> tuple[str, ...]:
    """Methods that may read a file of this name."""
    return next((methods for prefix, methods in PREFIXES.items() if name.lower().startswith(prefix)), ())


def _likeness(drafter: str, target: str) -> int:
    """Characters that a drafter's name, without its prefix, has in common with the beginning of the target's."""
    prefix = next((prefix for prefix in PREFIXES if drafter.lower().startswith(prefix)), "")
    rest = drafter[len(prefix) :].lstrip("-_.")
    pairs = zip(rest.lower(), target.lower(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
