"""A trained head, written in the layouts of other projects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spec_core import Target
from spec_train import output
from spec_train.heads.export import hf
from spec_train.heads.export.trained import Trained


def write_head(trained: Trained, target: Target, out: Path, layout: str, kind: str) -> None:
    """One file (gguf) or a directory. kind: type of the matrices. Raises UsageError if the disk is full."""
    writers: dict[str, Callable[[Path], None]] = {
        "gguf": lambda path: _write_gguf(trained, target, path, kind),
        "speculators": lambda path: hf.write_hf(path, trained, hf.speculators(trained, target), kind),
        "safeailab": lambda path: hf.write_hf(path, trained, hf.safeailab(trained, target), kind, "midlayer."),
        "z-lab": lambda path: hf.write_hf(path, trained, hf.z_lab(trained, target), kind),
    }
    with output.atomic_path(out) as part:
        writers[layout](part)


def _write_gguf(trained: Trained, target: Target, path: Path, kind: str) -> None:
    from spec_train.heads.export import gguf  # an optional dependency, see ``check_layout``

    gguf.write_gguf(trained, target, path, kind)
