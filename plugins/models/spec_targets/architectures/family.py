"""The description of one architecture in a file of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op
from torch import Tensor

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.keys import Keys


@attrs.frozen
class Stored:
    """Place of a tensor in Hugging Face checkpoints, and its conversion.

    names: alternatives, the first that exists counts. They follow the prefix of the block or of the model; one that
    begins with ``/`` is whole. ``{}`` stands for the number of an expert: one tensor for each, which are stacked.
    change: from the stored tensor to GGUF's; it is also called with tensors without values, for their shape.
    """

    names: tuple[str, ...]
    change: Callable[[Tensor, Config], Tensor] | None = None


Name = str | Stored


def stored_as(*names: str, change: Callable[[Tensor, Config], Tensor] | None = None) -> Stored:
    return Stored(names, change)


def plus_one(names: Mapping[str, Name], *but: str) -> dict[str, Name]:
    """Names for checkpoints that store the weights of norms less 1. but: norms that they store whole."""
    return {
        name: Stored((where,), add_one) if isinstance(where, str) and "norm" in name and name not in but else where
        for name, where in names.items()
    }


def add_one(value: Tensor, config: Config) -> Tensor:
    return value.float() + 1


@attrs.frozen(eq=False)
class Family:
    """One architecture: how its files describe it, the names of its tensors, and the operations of its blocks.

    name: ``general.architecture`` in GGUF files. classes: ``architectures`` in config.json; model_types: ``model_type``
    in it, for configs without the former.
    gguf, hf: from the keys of a file to sizes. They raise UsageError for what is not supported.
    block: the operations of block ``i`` of the trunk, or after it, in reading order; a file must contain the tensors
    that they read.
    before: operations between the embedding and the first block.
    names: by GGUF's name, without ``blk.N.``, where checkpoints have a tensor.
    renamed: tensors that GGUF files of this architecture call otherwise, by the name in files.
    interleaved: GGUF files store rows of q and k so that neighbouring dimensions of a head rotate together.
    """

    name: str
    classes: tuple[str, ...]
    model_types: tuple[str, ...]
    gguf: Callable[[Keys], Config]
    hf: Callable[[ConfigJson], Config]
    block: Callable[[Builder, Config, int], Iterator[Op]]
    names: Mapping[str, Name]
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    before: Callable[[Builder, Config], Iterable[Op]] = lambda builder, config: ()
    interleaved: bool = False
