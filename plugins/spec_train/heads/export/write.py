"""A trained head in the layouts that others read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
from torch import Tensor

from spec_core import Target
from spec_train import place
from spec_train.shape import Shape


@attrs.frozen(eq=False)
class Trained:
    """A head to be written. weights: float32 by the names of GGUF, rows of q and k so that halves of a head turn.

    d2t: [Vd] int64, the target's id of every row of logits, or None where they are all of them in order.
    """

    shape: Shape
    weights: dict[str, Tensor]
    d2t: Tensor | None
    name: str


def write(trained: Trained, target: Target, out: Path, layout: str, kind: str) -> None:
    """One file (gguf) or a directory. kind: type of matrices. Raises UsageError; nothing is left under another name."""
    from spec_train.write import gguf, hf

    writers: dict[str, Callable[[Path], None]] = {
        "gguf": lambda path: gguf.write(trained, target, path, kind),
        "speculators": lambda path: hf.write(path, trained, hf.speculators(trained, target), kind),
        "safeailab": lambda path: hf.write(path, trained, hf.safeailab(trained, target), kind, "midlayer."),
        "z-lab": lambda path: hf.write(path, trained, hf.z_lab(trained, target), kind),
    }
    with place.beside(out) as part:
        writers[layout](part)
