"""Files of a repository as its hub lists them, checked before one is written."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import attrs

from spec_core.errors import SpecError

WEIGHTS = (".safetensors", ".gguf")
TEXT_BYTES_MAX = 128 << 20
"""Max size of a file that holds no weights; the largest tokenizers have 35 MB."""
SHA256 = re.compile(r"[0-9a-f]{64}")
SHA1 = re.compile(r"[0-9a-f]{40}")
DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(\..*)?", re.IGNORECASE)
"""Names of Windows' devices, with any ending."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")


class HubError(SpecError):
    """A hub that cannot be reached, refuses, or serves something else than it announced: exit code 1."""


@attrs.frozen
class RemoteFile:
    """A file of a repository. digest: SHA-256 of its bytes, or the SHA-1 that git gives it; also its blob's name."""

    path: str
    size: int
    digest: str = ""

    def hasher(self) -> Any:
        """An object with ``update`` and ``hexdigest``, whose result for the right bytes is the digest."""
        if SHA256.fullmatch(self.digest):
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)


def check_files(files: Iterable[RemoteFile], where: str) -> list[RemoteFile]:
    """The files. Raises HubError for a path that leaves its folder, a digest that is none, or an impossible size."""
    checked = list(files)
    for file in checked:
        if not is_safe(file.path):
            raise _refusal(where, f"a file with the path {file.path[:100]!r}", "a path inside the repository")
        if not (SHA256.fullmatch(file.digest) or SHA1.fullmatch(file.digest)):
            raise _refusal(where, f"{file.path} with the hash {file.digest[:80]!r}", "a SHA-256 or a SHA-1 of git")
        if file.size < 0 or (file.size > TEXT_BYTES_MAX and not file.path.endswith(WEIGHTS)):
            raise _refusal(where, f"{file.path} with {file.size} bytes", f"at most {TEXT_BYTES_MAX} for such a file")
    return checked


def is_safe(path: str) -> bool:
    """Whether a path is relative, in its plainest form, and stays below its folder, on Windows too."""
    pure = PurePosixPath(path)
    plain = bool(path) and str(pure) == path and not pure.is_absolute() and not ({".", ".."} & {*pure.parts})
    return plain and CONTROL.search(path) is None and not any(map(_has_meaning_on_windows, pure.parts))


def _has_meaning_on_windows(part: str) -> bool:
    """Whether Windows reads a part of a path as a drive, a stream, a device, or another name."""
    return ":" in part or part.endswith((".", " ")) or DEVICE.fullmatch(part) is not None


def _refusal(where: str, listed: str, needed: str) -> HubError:
    return HubError(
        f"{where} lists {listed}; {needed} is needed", hint="nothing was downloaded; do not use this repository"
    )
