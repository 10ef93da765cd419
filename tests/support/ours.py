"""Discovery without the plugins of other packages that happen to be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import pytest


@contextmanager
def without_strangers() -> Iterator[None]:
    """Discovery finds this project's plugins and the test's own, and ignores others in the environment."""
    strangers = {point for dist in metadata.distributions() if dist.name != "spec-core" for point in plugins_of(dist)}
    real = metadata.entry_points

    def entry_points(**keywords: Any) -> metadata.EntryPoints:
        known = real()
        points = [point for group in known.groups for point in known.select(group=group) if point not in strangers]
        return metadata.EntryPoints(points).select(**keywords)

    with pytest.MonkeyPatch.context() as patch:
        if strangers:
            patch.setattr(metadata, "entry_points", entry_points)
        yield


def plugins_of(dist: metadata.Distribution) -> list[metadata.EntryPoint]:
    return [point for point in dist.entry_points if point.group.startswith(("spec_core.", "spec_targets."))]
