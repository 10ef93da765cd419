"""A model before its weights are read: described once, for every run that it is checked for."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import attrs

from spec_core.assembly.loading import load, read_weights
from spec_core.contract.target import Target


@attrs.define(eq=False)
class Description:
    """A model whose files, sizes and companions were read, and no weight.

    location, options: as for ``load``. target: with metadata only.
    """

    location: str | Path
    options: dict[str, Any]
    target: Target
    _loaded: dict[tuple[tuple[str, Any], ...], weakref.ref[Any]] = attrs.field(init=False, factory=dict)

    def load(self, **changes: Any) -> Target:
        """The target with its weights. Runs share it while one of them keeps it.

        changes: options of ``load`` that differ from the description's: ``threads``. Files that changed since
        they were described are opened and checked again. Raises as ``load``.
        """
        key = tuple(sorted(changes.items()))
        if key in self._loaded and (target := self._loaded[key]()) is not None:
            return target
        target = self._read(changes)
        try:
            self._loaded[key] = weakref.ref(target)
        except TypeError:  # a class with slots: its targets are not shared
            return target
        return target

    def _read(self, changes: dict[str, Any]) -> Target:
        if self.target.tokenizer is not None:
            self.target.tokenizer.encode("")  # a tokenizer that cannot be built is refused before weights are read
        return read_weights(self.target, self.location, {**self.options, **changes})


def describe(location: str | Path, **options: Any) -> Description:
    """Read the metadata of a model: everything that can be refused without weights is. options: as for ``load``."""
    return Description(location, options, load(location, **{**options, "weights": False}))
