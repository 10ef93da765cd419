"""A model's files, opened: sizes, tensors by GGUF name, and tokenizer; no value of a tensor was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
from torch import Tensor

from spec_targets.architectures.config import Config
from spec_targets.formats.stamps import FileStamps
from spec_targets.runtime.weights import Weights

if TYPE_CHECKING:
    from spec_targets.pictures.encoder import HfImageEncoder


@attrs.frozen(eq=False)
class Checkpoint:
    """A file or directory of a model, whatever its format.

    divisors: of the rotation, from the files. file: its path. types: number of tensors of each storage type.
    notes: for the user. stamps: of its files. image_encoder: of a model with eyes.
    """

    config: Config
    weights: Weights
    tokenizer: Any = None
    divisors: Tensor | None = None
    file: str = ""
    types: Mapping[str, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    stamps: FileStamps | None = None
    image_encoder: HfImageEncoder | None = None
