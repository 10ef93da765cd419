"""A model of a hub as a path: from the cache, or downloaded into it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from spec_core.errors import UsageError
from spec_hub.cache import CachedRepository, find_cached
from spec_hub.client import Hub, Listing, connect_hub, plain_errors
from spec_hub.hub_name import HubName
from spec_hub.progress import DownloadProgress
from spec_hub.remote_file import HubError, RemoteFile
from spec_hub.selection import Selection, select_files
from spec_hub.transfer import transfer


def path_of(name: HubName) -> Path:
    """The path of a model, which is downloaded if the cache lacks it. Raises UsageError, HubError."""
    hub = connect_hub()
    return find_cached(name) or fetch_model(name, hub)


def fetch_model(name: HubName, hub: Hub) -> Path:
    """Download what the cache lacks of a model's newest revision, and return its path. Raises UsageError, HubError."""
    return _offline_path(name, hub) if hub.offline else fetch_listed(name, hub, hub.list_files(name))


def fetch_listed(name: HubName, hub: Hub, listing: Listing) -> Path:
    """Download what the cache lacks of these files. Raises UsageError, HubError."""
    selection = select_files(listing.files, name)
    repository = CachedRepository(hub.cache, name.repository)
    with plain_errors(hub, name):
        _check_space(hub.cache, repository.missing_bytes(selection), name)
        _fetch_files(hub, name, listing, selection, repository)
        repository.name_commit(name.revision, listing.commit)
    return repository.snapshot(listing.commit) / selection.opened


def _offline_path(name: HubName, hub: Hub) -> Path:
    path = find_cached(name)
    if path is None:
        raise UsageError(
            f"{name} is not in the cache {hub.cache}, and HF_HUB_OFFLINE forbids downloads",
            hint=f"unset HF_HUB_OFFLINE and run `spec get {shlex.quote(str(name))}`",
        )
    return path


def _fetch_files(hub: Hub, name: HubName, listing: Listing, selection: Selection, repository: CachedRepository) -> None:
    with DownloadProgress(str(name), selection.size) as progress:
        for file in selection.files:
            progress.advance(file.size if repository.has(file) else repository.partial_size(file))
            if not repository.has(file):
                _fetch_file(hub, name, listing.commit, file, repository, progress)
            repository.link(file, listing.commit)


def _fetch_file(
    hub: Hub,
    name: HubName,
    commit: str,
    file: RemoteFile,
    repository: CachedRepository,
    progress: DownloadProgress,
) -> None:
    """Download one file; a process that downloads it at the same time is waited for."""
    from filelock import FileLock

    lock = repository.lock(file)
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        if not repository.has(file):
            transfer(hub, name, file, commit, repository, progress.advance)


def _check_space(cache: Path, missing: int, name: HubName) -> None:
    """Raise HubError if the disk of the cache has not enough space."""
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if missing > free:
        raise HubError(
            f"{name} needs {missing / 1e9:.2f} GB more in {cache}, {free / 1e9:.2f} GB are free",
            hint="free some space, choose a smaller quantisation, or set HF_HUB_CACHE to a folder on another disk",
        )
