"""The cache of ``huggingface_hub``: blobs by their hash, snapshots of links to them, and refs from names to commits."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import attrs

from spec_core.errors import UsageError
from spec_hub.hub_name import COMMIT, HubName
from spec_hub.remote_file import RemoteFile
from spec_hub.selection import CONFIG, INDEX, Selection, select_files


def cache_root() -> Path | None:
    """The folder of the cache, None without ``huggingface_hub``."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return None
    return Path(constants.HF_HUB_CACHE)


def find_cached(name: HubName) -> Path | None:
    """The path of a model whose files are all in the cache, None for another. Never uses the network."""
    root = cache_root()
    repository = None if root is None else CachedRepository(root, name.repository)
    commit = None if repository is None else repository.commit_of(name.revision)
    if repository is None or commit is None:
        return None
    try:
        selection = select_files(repository.files(commit), name)
    except UsageError:
        return None
    path = repository.snapshot(commit) / selection.opened
    return path if path.is_file() or _is_whole(path) else None


def _is_whole(directory: Path) -> bool:
    """Whether a directory has its config and every file of weights that its index lists."""
    if not (directory / INDEX).is_file():
        return (directory / CONFIG).is_file() and any(directory.glob("*.safetensors"))
    try:
        shards = {str(shard) for shard in json.loads((directory / INDEX).read_text("utf-8"))["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return all((directory / shard).is_file() for shard in shards)


@attrs.frozen
class CachedRepository:
    """The folder of a repository in the cache. repository: ``ORG/NAME``."""

    root: Path
    repository: str

    @property
    def folder(self) -> Path:
        return self.root / ("models--" + self.repository.replace("/", "--"))

    def snapshot(self, commit: str) -> Path:
        return self.folder / "snapshots" / commit

    def blob(self, file: RemoteFile) -> Path:
        return self.folder / "blobs" / file.digest

    def partial(self, file: RemoteFile) -> Path:
        """Where a file lies while it is downloaded; a later download goes on from there."""
        return self.folder / "blobs" / f"{file.digest}.incomplete"

    def lock(self, file: RemoteFile) -> Path:
        return self.root / ".locks" / self.folder.name / f"{file.digest}.lock"

    def commit_of(self, revision: str) -> str | None:
        """The commit of a branch or tag that was downloaded, or of a commit."""
        if COMMIT.fullmatch(revision):
            return revision
        try:
            commit = (self.folder / "refs" / revision).read_text("utf-8").strip()
        except (OSError, ValueError):
            return None
        return commit if COMMIT.fullmatch(commit) else None

    def files(self, commit: str) -> list[RemoteFile]:
        """Files of a snapshot whose blobs are there."""
        snapshot = self.snapshot(commit)
        paths = sorted(path for path in snapshot.rglob("*") if path.is_file())
        return [RemoteFile(path.relative_to(snapshot).as_posix(), path.stat().st_size) for path in paths]

    def has(self, file: RemoteFile) -> bool:
        """Whether the whole blob of a file is there."""
        blob = self.blob(file)
        return blob.is_file() and blob.stat().st_size == file.size

    def missing_bytes(self, selection: Selection) -> int:
        """Bytes of a selection that are still to be downloaded."""
        return sum(file.size - self.partial_size(file) for file in selection.files if not self.has(file))

    def partial_size(self, file: RemoteFile) -> int:
        partial = self.partial(file)
        return min(partial.stat().st_size, file.size) if partial.is_file() else 0

    def link(self, file: RemoteFile, commit: str) -> None:
        """Put a blob into a snapshot: as a relative link, or as a copy where there are no links."""
        place = self.snapshot(commit) / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_file():
            return
        place.unlink(missing_ok=True)
        try:
            place.symlink_to(os.path.relpath(self.blob(file), place.parent))
        except OSError:
            shutil.copyfile(self.blob(file), place)

    def name_commit(self, revision: str, commit: str) -> None:
        """Remember the commit of a branch or tag."""
        if revision == commit:
            return
        ref = self.folder / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        part = ref.with_name(f"{ref.name}.{os.getpid()}.part")
        part.write_text(commit, "utf-8")
        part.replace(ref)
