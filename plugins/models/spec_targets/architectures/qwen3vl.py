"""The text part of Qwen3-VL: a Qwen3 whose positions have three axes, and that gets rows of pictures a second time.

After a picture the text goes on after its longer side, so a row's position is not its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import AddRows, Op

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import DECODER
from spec_targets.architectures.positions import rope_of
from spec_targets.architectures.qwen import qwen3

AXES = 3
"""Time, height and width."""


def from_gguf(keys: Keys) -> Config:
    raise UsageError(
        "GGUF files of qwen3vl are not read: the rows of their pictures are in a second file",
        hint="use the Hugging Face directory of the model",
    )


def from_hf(json: ConfigJson) -> Config:
    config = json.decoder()
    return attrs.evolve(config, axes=axes_of(rope_of(json.raw), config.rotary_dim // 2, json.where))


def axes_of(rope: Mapping[str, object], pairs: int, where: str) -> tuple[int, ...]:
    """The axis of every pair of a head that rotates. Raises UsageError for sections that are not interleaved."""
    sections = rope.get("mrope_section")
    good = isinstance(sections, list) and len(sections) == AXES and all(type(n) is int and n >= 0 for n in sections)
    if (
        not isinstance(sections, list)
        or not good
        or sum(sections) != pairs
        or rope.get("mrope_interleaved") is not True
    ):
        raise UsageError(
            f"{where}: config.json has mrope_section = {str(sections)[:60]!r}",
            hint=f"three numbers with the sum {pairs}, and mrope_interleaved = true, are needed",
        )
    return tuple(i % AXES if i % AXES and i < AXES * sections[i % AXES] else 0 for i in range(pairs))


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield from qwen3(b, c, i)
    if i < c.added:
        yield AddRows("x", i)


QWEN3_VL = Family(
    name="qwen3vl",
    classes=("Qwen3VLForConditionalGeneration",),
    model_types=("qwen3_vl_text", "qwen3_vl"),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=DECODER,
)
