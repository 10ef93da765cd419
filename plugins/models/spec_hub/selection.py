"""Which files of a repository a name means: one GGUF file with all its parts, or a directory of safetensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

import attrs

from spec_core.errors import UsageError, nearest_names
from spec_hub.hub_name import HubName
from spec_hub.remote_file import RemoteFile

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(gguf|safetensors)")
DRAFTER = re.compile(r"(mtp-|eagle3-|dflash-|dspark-|gemma4-assistant)", re.IGNORECASE)
"""Beginnings of GGUF files that are drafters for the other files of their folder."""
OTHER = re.compile(r"(mmproj|imatrix)", re.IGNORECASE)
"""Beginnings of GGUF files that are neither models nor drafters."""
DIRECTORY_FILES = re.compile(r"[^/]+\.(json|jinja|model)|merges\.txt|vocab\.txt")
QUANTISATION = re.compile(r"(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32)(?=[-.]|$)", re.IGNORECASE)
PREFERRED = "Q4_K_M"
"""The quantisation that is chosen if a name says none and there are several."""


@attrs.frozen
class Selection:
    """files: in the order in which they are fetched. opened: the path that a loader opens, "" for the directory."""

    files: tuple[RemoteFile, ...]
    opened: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def select_files(files: Sequence[RemoteFile], name: HubName) -> Selection:
    """The files that a name means. Raises UsageError if it means none, several, or not all parts are there."""
    if name.part and name.part.endswith(".gguf"):
        return _gguf(files, name, lambda path: path == name.part, f"no file {name.part}")
    models = [file for file in files if _is_model(file.path)]
    if name.part:
        return _gguf(models, name, lambda path: _has_word(path, name.part or ""), f"no GGUF file of {name.part}")
    if any(file.path == CONFIG for file in files) and (weights := _weights(files)):
        small = [f for f in files if DIRECTORY_FILES.fullmatch(f.path) and f.path != CONFIG]
        return Selection((*weights, *small, *(f for f in files if f.path == CONFIG)))
    if len(_firsts(models)) > 1 and any(_has_word(file.path, PREFERRED) for file in models):
        return _gguf(models, name, lambda path: _has_word(path, PREFERRED), f"no GGUF file of {PREFERRED}")
    return _gguf(models, name, lambda path: True, f"neither a GGUF file nor {CONFIG} with safetensors")


def _gguf(files: Sequence[RemoteFile], name: HubName, fits: Callable[[str], bool], nothing: str) -> Selection:
    firsts = _firsts(files)
    matches = [file for file in firsts if fits(file.path)]
    if len(matches) > 1:
        exact = [f for f in matches if name.part and quantisation(f.path).lower() == name.part.lower()]
        matches = exact if len(exact) == 1 else matches
    if not matches:
        known = nearest_names(name.part or "", {quantisation(f.path) or f.path for f in firsts})
        raise UsageError(f"{name} has {nothing}", hint=f"it has: {known[:400]}")
    if len(matches) > 1:
        listed = ", ".join(f"{file.path} ({file.size / 1e9:.1f} GB)" for file in matches[:12])
        raise UsageError(f"{name} has several models: {listed}", hint="name one: ORG/NAME:FILE, or its quantisation")
    return Selection(_parts(files, matches[0], name), matches[0].path)


def _parts(files: Sequence[RemoteFile], first: RemoteFile, name: HubName) -> tuple[RemoteFile, ...]:
    """A file, or all parts of it. Raises UsageError for a missing part."""
    match = SHARD.fullmatch(first.path)
    if match is None:
        return (first,)
    there = {file.path: file for file in files}
    paths = [f"{match['stem']}-{i:05}-of-{match['count']}.gguf" for i in range(1, int(match["count"]) + 1)]
    if missing := [path for path in paths if path not in there]:
        raise UsageError(f"{name} lacks {len(missing)} of {len(paths)} parts, such as {missing[0]}", hint=_AGAIN)
    return tuple(there[path] for path in paths)


_AGAIN = "name another quantisation, or a revision that is whole: ORG/NAME@REVISION"


def _firsts(files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """GGUF files, of files in parts the first."""
    parts = ((file, SHARD.fullmatch(file.path)) for file in files if file.path.endswith(".gguf"))
    return [file for file, match in parts if match is None or int(match["number"]) == 1]


def _weights(files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """The safetensors of a directory: what its index lists if it has one, else one file, else all."""
    there = {f.path: f for f in files if "/" not in f.path}
    if INDEX in there:
        return [f for path, f in there.items() if SHARD.fullmatch(path) and path.endswith(".safetensors")]
    if "model.safetensors" in there:
        return [there["model.safetensors"]]
    return [f for path, f in there.items() if path.endswith(".safetensors")]


def _is_model(path: str) -> bool:
    name = PurePosixPath(path).name
    return path.endswith(".gguf") and not DRAFTER.match(name) and not OTHER.match(name)


def is_drafter(path: str) -> bool:
    """Whether a file is a drafter for the other files of its folder, as its name says."""
    return path.endswith(".gguf") and DRAFTER.match(PurePosixPath(path).name) is not None


def _has_word(path: str, word: str) -> bool:
    """Whether a quantisation's name is in a path, not as a part of a longer one."""
    before = "a-z0-9" if QUANTISATION.fullmatch(word) else "a-z0-9_"
    return re.search(rf"(?<![{before}]){re.escape(word)}(?![a-z0-9_])", path, re.IGNORECASE) is not None


def quantisation(path: str) -> str:
    """The quantisation that a file's name says, "" for none."""
    names = QUANTISATION.findall(PurePosixPath(path).name)
    return names[-1] if names else ""
