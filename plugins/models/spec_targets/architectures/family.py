"""The description of one architecture in a file of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.keys import Keys
from spec_targets.formats.stored_names import Name, Stored
from spec_targets.tokenizer.patterns import Division


@attrs.frozen(eq=False)
class Family:
    """One architecture: how its files describe it, the names of its tensors, and the operations of its blocks."""

    name: str
    """``general.architecture`` in GGUF files."""
    classes: tuple[str, ...]
    """``architectures`` in config.json."""
    model_types: tuple[str, ...]
    """``model_type`` in config.json, for configs without ``architectures``."""
    gguf: Callable[[Keys], Config]
    """Function from the keys of a GGUF file to sizes. It raises UsageError for what is not supported."""
    hf: Callable[[ConfigJson], Config]
    """Function from config.json to sizes. It raises UsageError for what is not supported."""
    block: Callable[[Builder, Config, int], Iterator[Op]]
    """Operations of block ``i`` of the trunk, or after it, in reading order; a file must contain the tensors that they
    read."""
    names: Mapping[str, Name]
    """By GGUF's name, without ``blk.N.``, where checkpoints have a tensor."""
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    """Tensors that GGUF files of this architecture call otherwise, by the name in files."""
    fused: Mapping[str, Stored] = attrs.field(factory=dict)
    """Tensors that some GGUF files have as a part of another one, without ``blk.N.``, and how they are taken out."""
    before: Callable[[Builder, Config], Iterable[Op]] = lambda builder, config: ()
    """Operations between the embedding and the first block; with streams, they make them."""
    interleaved: bool = False
    """Whether GGUF files store rows of q and k so that neighbouring dimensions of a head rotate together."""
    divisions: Mapping[str, Division] = attrs.field(factory=dict)
    """How a text is divided before merging, by names of ``tokenizer.ggml.pre`` that GGUF files of other architectures
    do not have."""
