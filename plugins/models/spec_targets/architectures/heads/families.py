"""Families of draft heads, as files name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from spec_targets.architectures.heads.names import ASSISTANTS, is_assistant, is_head

if TYPE_CHECKING:
    from spec_targets.architectures.heads.checkpoint import HeadCheckpoint
    from spec_targets.formats.gguf import GgufFile


@attrs.frozen(eq=False)
class HeadFamily:
    """Draft heads of one kind of layers.

    names: ``general.architecture`` in GGUF files. is_json: whether config.json is that of one.
    gguf, hf: from an opened file, or a directory and its config.json, to a head. They raise UsageError for anything
    missing, damaged or unsupported.
    """

    names: tuple[str, ...]
    is_json: Callable[[Mapping[str, Any]], bool]
    gguf: Callable[[GgufFile], HeadCheckpoint]
    hf: Callable[[Path, Mapping[str, Any]], HeadCheckpoint]


def _read_gguf(file: GgufFile) -> HeadCheckpoint:
    from spec_targets.architectures.heads import gguf_head

    return gguf_head.from_gguf(file)


def _read_directory(directory: Path, raw: Mapping[str, Any]) -> HeadCheckpoint:
    from spec_targets.architectures.heads import hf_head

    return hf_head.from_directory(directory, raw)


def _read_gguf_assistant(file: GgufFile) -> HeadCheckpoint:
    from spec_targets.architectures.heads import assistant

    return assistant.from_gguf(file)


def _read_assistant_directory(directory: Path, raw: Mapping[str, Any]) -> HeadCheckpoint:
    from spec_targets.architectures.heads import assistant

    return assistant.from_directory(directory, raw)


HEADS = (
    HeadFamily(("eagle3", "dflash"), is_head, _read_gguf, _read_directory),
    HeadFamily(ASSISTANTS, is_assistant, _read_gguf_assistant, _read_assistant_directory),
)
"""Readers are imported when a head is opened."""


def head_family_of(accept: Callable[[HeadFamily], bool]) -> HeadFamily | None:
    """The first family of heads that is accepted; None if there is none."""
    return next(filter(accept, HEADS), None)
