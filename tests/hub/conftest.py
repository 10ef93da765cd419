"""A local hub, and a cache that belongs to one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_hub import LocalHub, serve_hub


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder; without a token, and without pauses after breaks."""
    constants = pytest.importorskip("huggingface_hub.constants")
    folder = tmp_path / "home" / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr("spec_hub.transfer.PAUSE_SECONDS", 0.0)
    return folder


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """A hub that ``HF_ENDPOINT`` names."""
    with serve_hub() as served:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", served.endpoint)
        yield served
