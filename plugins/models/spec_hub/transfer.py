"""One file from a hub into its blob: goes on after breaks, never longer than announced, checked by its hash."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_hub.cache import CachedRepository
from spec_hub.client import Hub, is_broken
from spec_hub.deadline import Pace
from spec_hub.hub_name import HubName
from spec_hub.remote_file import HubError, RemoteFile

TRIES = 5
"""Tries in a row that bring no byte, after which a download fails."""
PAUSE_SECONDS = 1.0
"""Pause after a connection that broke."""
CHUNK = 1 << 20
Advance = Callable[[int], None]
"""Receives the number of new bytes; negative if bytes are downloaded again."""


def transfer(
    hub: Hub, name: HubName, file: RemoteFile, commit: str, repository: CachedRepository, advance: Advance
) -> None:
    """Download a file, from where an earlier download ended. Raises HubError, and the connection's last error."""
    partial = repository.partial(file)
    partial.parent.mkdir(parents=True, exist_ok=True)
    failures, pace = 0, Pace(f"{name}: {file.path}")

    def count(size: int) -> None:
        pace.advance(max(0, size))
        advance(size)

    while (start := _usable_bytes(partial, file)) < file.size or not partial.exists():
        broke: Exception = HubError(f"{name}: {file.path} ends before its {file.size} bytes", hint="try again later")
        try:
            with hub.stream(name, file, commit, start) as response:
                _append(response, partial, start, file, name, count)
        except Exception as error:
            if not is_broken(error):
                raise
            broke = error
        failures = 0 if (size := _usable_bytes(partial, file)) > start else failures + 1
        if failures >= TRIES:
            raise broke
        if size < file.size:
            time.sleep(PAUSE_SECONDS)
    _check_hash(partial, file, name)
    os.replace(partial, repository.blob(file))


def _usable_bytes(partial: Path, file: RemoteFile) -> int:
    """Bytes of an earlier download; one that is too long is removed."""
    size = partial.stat().st_size if partial.exists() else 0
    if size > file.size:
        partial.unlink()
        return 0
    return size


def _append(response: Any, partial: Path, start: int, file: RemoteFile, name: HubName, advance: Advance) -> None:
    """Write a response after the first ``start`` bytes, or from the beginning if it has the whole file."""
    if start and not _continues(response, start):
        advance(-start)
        start = 0
    with partial.open("r+b" if start else "wb") as out:
        out.seek(start)
        for chunk in response.iter_raw():
            if out.tell() + len(chunk) > file.size:
                out.close()
                partial.unlink()
                raise HubError(
                    f"{name}: {file.path} is longer than the {file.size} bytes that the hub announced",
                    hint="the file was removed; try again, and do not use the repository if it happens again",
                )
            out.write(chunk)
            advance(len(chunk))


def _continues(response: Any, start: int) -> bool:
    """Whether a response begins at byte ``start`` of the file."""
    return response.status_code == 206 and str(response.headers.get("content-range")).startswith(f"bytes {start}-")


def _check_hash(partial: Path, file: RemoteFile, name: HubName) -> None:
    hasher = file.hasher()
    with partial.open("rb") as data:
        while chunk := data.read(CHUNK):
            hasher.update(chunk)
    if hasher.hexdigest() != file.digest:
        partial.unlink()
        raise HubError(
            f"{name}: {file.path} has the hash {hasher.hexdigest()}, the hub announced {file.digest}",
            hint="the file was removed; try again, and do not use the repository if it happens again",
        )
